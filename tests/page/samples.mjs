// Reports of sweeps and of tuning, made up: what the page must be able to draw.

// A step over three axes; some points have no answer.
export function sweep(caps = 25, hosts = 20, bandwidths = 20) {
  const columns = [
    { name: "plan.bucket_cap_mb", role: "axis", unit: "" },
    { name: "cluster.hosts", role: "axis", unit: "" },
    { name: "cluster.link.bandwidth", role: "axis", unit: "" },
    { name: "step_ps", role: "result", unit: "ps" },
    { name: "samples_per_s", role: "result", unit: "" },
    { name: "scaling_efficiency", role: "result", unit: "share" },
    { name: "reason", role: "reason" },
  ];
  const data = columns.map(() => []);
  for (let c = 0; c < caps; ++c)
    for (let h = 0; h < hosts; ++h)
      for (let b = 0; b < bandwidths; ++b) {
        const cap = Math.round(1.26 ** c * 10) / 10;
        const n = h + 1;
        const gbps = 10 * (b + 1);
        const bad = n > 18 && gbps < 40;
        const step = Math.round(
          2e10 +
            8e8 / cap +
            1.5e8 * cap * (n > 1) +
            (n > 1 ? ((8e11 / gbps) * (1 - 1 / n)) / 4 : 0),
        );
        const values = [
          cap,
          n,
          `${gbps}Gb/s`,
          bad ? null : step,
          bad ? null : Math.round((32 * n) / (step / 1e12)),
          bad ? null : 2e10 / step,
          bad ? `cluster.hosts=${n}: no such cluster <at ${gbps} Gb/s>` : "",
        ];
        values.forEach((v, i) => data[i].push(v));
      }
  return {
    kind: "sweep",
    version: "0",
    title: "resnet50 on ethernet: 3 axes",
    provenance: ["profile a100.datasheet: datasheet, never measured on this hardware"],
    notes: [],
    nccl: "",
    scenario: { workload: "resnet50", plan: { system: "pytorch_ddp" } },
    columns,
    data,
  };
}

export function tune() {
  const curve = [1, 2, 5, 10, 25, 50, 100, 200].map((value) => {
    const step = Math.round(2.4e11 + 6e9 / value + 1.1e8 * value);
    return {
      value,
      step_ps: step,
      low_ps: Math.round(step * 0.985),
      high_ps: Math.round(step * 1.02),
    };
  });
  const best = curve.reduce((a, b) => (b.step_ps < a.step_ps ? b : a));
  return {
    kind: "tune",
    version: "0",
    title: "resnet50 on gpu-ethernet-25g: bucket_cap_mb",
    question: "resnet50 on gpu-ethernet-25g: 8 ranks",
    profile: "a100.datasheet",
    basis: "datasheet, never measured on this hardware",
    chosen: { value: 10, step_ps: curve[3].step_ps },
    notes: ["every step is a mean"],
    knob: "bucket_cap_mb",
    curve,
    best: { value: best.value, step_ps: best.step_ps },
    current: { value: 25, step_ps: curve[4].step_ps },
    flat: { from: 2, to: 25 },
    lower_bound_ps: 238_000_000_000,
    partition: {
      buckets: [8196000, 31498240, 20258816, 14300160, 9000960, 2097152],
      step_ps: 240_100_000_000,
      bucket_cap_mb_list: [7.8, 30, 19.3, 13.6, 8.6, 2],
    },
    levers: [
      {
        change: "comm_hook=bf16_compress (changes numerics)",
        command: "--set comm_hook=bf16_compress",
        step_ps: 205_000_000_000,
      },
      {
        change: "gradient_as_bucket_view=True",
        command: "--set gradient_as_bucket_view=true",
        step_ps: 238_500_000_000,
      },
      { change: "overlap off", command: "--plan averaging", step_ps: 290_000_000_000 },
    ],
    lines: ["model = DistributedDataParallel(model, bucket_cap_mb=10)"],
    verdict:
      "bucket_cap_mb=10 is best, and 2 to 25 are within 1 %: a difference between them is smaller than the interval.",
  };
}

// What a command may also answer: one axis, one row, words and nulls; no interval, no partition,
// nothing to compare with.
export const odd = {
  one_axis: {
    kind: "sweep",
    version: "0",
    title: "one axis",
    columns: [
      { name: "plan.system", role: "axis", unit: "" },
      { name: "step_ps", role: "result", unit: "ps" },
      { name: "reason", role: "reason" },
    ],
    data: [
      ["pytorch_ddp", "averaging", null],
      [2e9, null, 3e9],
      ["", "why not", ""],
    ],
  },
  one_row: {
    kind: "sweep",
    version: "0",
    title: "one row",
    columns: [
      { name: "ranks", role: "axis", unit: "" },
      { name: "step_ps", role: "result", unit: "ps" },
    ],
    data: [[8], [2e9]],
  },
  no_result: {
    kind: "sweep",
    version: "0",
    title: "no result",
    columns: [
      { name: "a", role: "axis", unit: "" },
      { name: "b", role: "axis", unit: "" },
      { name: "step_ps", role: "result", unit: "ps" },
      { name: "reason", role: "reason" },
    ],
    data: [
      [1, 1, 2, 2],
      [true, false, true, false],
      [null, null, null, null],
      ["x", "x", "x", "x"],
    ],
  },
  bare_tune: {
    kind: "tune",
    version: "0",
    title: "bare",
    knob: "HOROVOD_CYCLE_TIME",
    curve: [
      { value: 1, step_ps: 5e9 },
      { value: 2, step_ps: 4e9 },
    ],
    best: { value: 2, step_ps: 4e9 },
    partition: null,
  },
};

export const fill = (template, data) =>
  template.replace("/*DATA*/", () => JSON.stringify(data).replaceAll("<", "\\u003c"));
