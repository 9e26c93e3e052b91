"""Lists what zero_record.py asks DeepSpeed for tests/data/recorded_orders: a model, the name of a
configuration, ranks, a rank, knobs. Knobs with a short name are in LONG."""

LONG = {
    "bucket": "reduce_bucket_size",
    "prefetch": "stage3_prefetch_bucket_size",
    "reuse": "stage3_max_reuse_distance",
    "live": "stage3_max_live_parameters",
    "persist": "stage3_param_persistence_threshold",
    "persist_all": "stage3_model_persistence_threshold",
    "multi_rank": "use_multi_rank_bucket_allreduce",
    "predivide": "gradient_predivide_factor",
    "prescale": "prescale_gradients",
    "wire": "communication_data_type",
}
NONE = {"stage": 3, "persist": 0}
NOTHING_AHEAD = {"prefetch": 0, "reuse": 0}
WIRE32 = {"dtype": "bf16", "wire": "fp32"}


def drawn(rnd, _):
    """A question nobody thought of."""
    stage, ranks = rnd.choice([1, 2, 3, 3]), rnd.choice([2, 2, 3, 4, 5, 8, 16])
    said = {"stage": stage}

    def maybe(share, knob, *values):
        if rnd.random() < share:
            said[knob] = rnd.choice(values)

    maybe(0.8, "bucket", 5, 50, 100, 200, 300, 400, 700, 1000, 2000)
    maybe(0.4, "overlap_comm", True, False)
    maybe(0.3, "contiguous_gradients", False)
    maybe(0.3, "reduce_scatter", False)
    maybe(0.3, "micro", 2, 3)
    maybe(0.4, "dtype", "bf16", "fp16")
    maybe(0.15, "wire", "fp32", "bf16", "fp16")
    maybe(0.1, "gradient_clipping", 1.0)
    if stage == 1 or not said.get("reduce_scatter", True):
        maybe(0.3, "prescale", True)
        maybe(0.3, "predivide", 2.0, 4.0)
    if stage < 3:
        maybe(0.3, "multi_rank", False)
        maybe(0.3, "round_robin_gradients", True)
    else:
        maybe(0.7, "prefetch", 0, 10, 50, 100, 200, 400, 800)
        maybe(0.8, "persist", 0, 0, 10, 31, 100, 400)
        maybe(0.5, "live", 0, 100, 300, 600, 1000, 2000)
        maybe(0.6, "reuse", 0, 50, 100, 300, 600, 1000, 2000)
        maybe(0.2, "persist_all", 0, 30, 75, 200, 1000)
        maybe(0.2, "sub_group_size", 1, 50, 200, 500)
    models = ["blocks3", "raw", "shared", "tower7", "twice"]
    model = "tower7" if said.get("dtype") == "fp16" else rnd.choice(models)
    return {"model": model, "ranks": ranks, "rank": rnd.randrange(ranks), **said}


def questions(of, _):
    stages_1_and_2(of)
    stage_3(of)
    limits(of)
    offloaded(of)
    quantised(of)
    exchanged(of)


def stages_1_and_2(of):
    for rank in range(3):
        of("blocks3", "small", 3, rank, stage=1, bucket=400)
        of("blocks3", "small", 3, rank, stage=2, bucket=250)
    of("twice", "default", 2, stage=2)
    of("tower7", "fp16", 4, 2, stage=2, dtype="fp16", bucket=300)
    of("tower7", "fp16_acc2", 4, stage=1, dtype="fp16", micro=2)
    of("blocks3", "overlap_acc2", 2, stage=1, overlap_comm=True, micro=2)
    of("blocks3", "overlap_acc2_nocontig", 2, stage=2, overlap_comm=True, micro=2,
       contiguous_gradients=False, bucket=300)
    for stage in (1, 2):
        of("blocks3", "overlap_nomulti", 4, stage=stage, overlap_comm=True, multi_rank=False,
           bucket=333)
        of("blocks3", "tiny_bucket", 4, 3, stage=stage, bucket=7)
        of("blocks3", "rr", 4, 1, stage=stage, round_robin_gradients=True, bucket=500)
    of("blocks3", "many", 64, 63, stage=2, bucket=400)
    of("blocks3", "many", 64, 20, stage=1, overlap_comm=True, bucket=400)
    of("blocks3", "bf16_wire32", 2, stage=2, **WIRE32, bucket=300)
    of("blocks3", "bf16_wire32_nomulti", 2, 1, stage=2, multi_rank=False, **WIRE32)
    of("blocks3", "bf16_wire32_norsc", 2, stage=1, reduce_scatter=False, **WIRE32)
    of("blocks3", "prescale", 4, stage=1, prescale=True, reduce_scatter=False)
    of("blocks3", "predivide4", 4, stage=2, predivide=4.0, reduce_scatter=False)
    of("blocks3", "prescale_rsc", 4, stage=1, prescale=True)


def stage_3(of):
    for rank in range(3):
        of("blocks3", "small", 3, rank, **NONE, bucket=300)
        of("blocks3", "small_norsc", 3, rank, **NONE, bucket=300, reduce_scatter=False)
    of("twice", "default", 2, **NONE)
    of("raw", "default", 2, **NONE, prefetch=100, bucket=100)
    of("shared", "default", 2, **NONE, prefetch=90)
    of("raw", "nothing_ahead", 3, **NONE, prefetch=0, reuse=50)
    of("twice", "nothing_ahead", 2, **NONE, **NOTHING_AHEAD)
    of("blocks3", "default", 2, stage=3)
    of("blocks3", "one_persistent", 2, stage=3, persist=100, persist_all=75)
    of("blocks3", "some_persistent", 3, 2, stage=3, persist=100, prefetch=300, persist_all=150)
    of("tower7", "fp16", 4, 1, **NONE, dtype="fp16", prefetch=200, bucket=300)
    of("tower7", "fp16_acc2", 2, stage=3, dtype="fp16", micro=2, persist=50)
    for size in (0, 100, 350, 1000):
        for reuse in (0, 300, 1000):
            of("blocks3", f"pf{size}_reuse{reuse}", 2, **NONE, prefetch=size, reuse=reuse)
    for live in (0, 200, 700):
        for persist in (0, 40):
            of("blocks3", f"live{live}_persist{persist}", 2, stage=3, live=live, persist=persist,
               prefetch=400)
    of("blocks3", "nooverlap_acc3", 2, **NONE, overlap_comm=False, micro=3, prefetch=200)
    of("blocks3", "acc3_reuse", 2, 1, **NONE, micro=3, prefetch=0, reuse=500)
    of("blocks3", "subgroups", 2, **NONE, sub_group_size=300)
    of("blocks3", "subgroups_bf16_wire32", 2, **NONE, sub_group_size=500, **WIRE32, bucket=300)
    of("blocks3", "norsc_predivide2_wire32", 4, **NONE, reduce_scatter=False, predivide=2.0,
       **WIRE32)
    of("blocks3", "norsc_prescale", 4, **NONE, reduce_scatter=False, prescale=True)
    of("blocks3", "many", 64, 63, **NONE, bucket=300, prefetch=300)


def limits(of):
    """Sizes that are exactly a limit."""
    for stage in (1, 2):
        of("twice", "exact", 2, stage=stage, bucket=50)
        of("twice", "exact_slice", 2, 1, stage=stage, bucket=26)
    of("twice", "exact", 2, **NONE, bucket=50, sub_group_size=46)
    of("twice", "exact_norsc", 2, **NONE, bucket=50, reduce_scatter=False)
    of("blocks3", "exact_persistent", 2, stage=3, persist=10, persist_all=40)
    # It is decided once what a module may release, and would be another thing later.
    of("tower7", "decided_once", 16, 14, stage=3, prefetch=100, persist=100, live=100, reuse=0)


def offloaded(of):
    def cpu(pinned=False, params=False):
        said = {"device": "cpu", "pin_memory": pinned}
        return {"offload_optimizer": said, **({"offload_param": said} if params else {})}

    of("blocks3", "offload", 2, **NONE, **cpu(), bucket=300)
    of("blocks3", "offload_params", 2, 1, **NONE, **cpu(params=True), bucket=300)
    of("blocks3", "offload_persistent", 3, 2, stage=3, **cpu(True, True))
    of("blocks3", "offload_acc3", 2, **NONE, **cpu(True), micro=3, bucket=200, prefetch=0,
       reuse=300)
    of("blocks3", "offload_params_subgroups_bf16", 4, 3, **NONE, **cpu(params=True), dtype="bf16",
       sub_group_size=100, overlap_comm=False, micro=2, prefetch=300)
    of("tower7", "offload_params_fp16", 4, 1, **NONE, **cpu(params=True), dtype="fp16")
    of("tower7", "offload_fp16_norsc", 2, **NONE, **cpu(), dtype="fp16", reduce_scatter=False)
    of("twice", "offload_params_one_persistent", 2, stage=3, persist=9, persist_all=9,
       **cpu(params=True))


def quantised(of):
    qwz, cpu = {"dtype": "fp16", "zero_quantized_weights": True}, {"device": "cpu"}
    of("eights", "qwz", 2, **NONE, **qwz)
    of("eights", "qwz_one_by_one", 4, 1, **NONE, **qwz, **NOTHING_AHEAD)
    of("eights", "qwz_persistent_offload", 4, 2, stage=3, persist=100, prefetch=9000, **qwz,
       offload_optimizer=cpu, offload_param=cpu)


def exchanged(of):
    qgz = {**NONE, "dtype": "fp16", "zero_quantized_gradients": True}
    of("plates", "qgz", 4, **qgz, devices=2)
    of("plates", "qgz_buckets", 8, 5, **qgz, devices=4, bucket=150)
    of("plates", "qgz_acc2_nooverlap", 8, 6, **qgz, devices=2, micro=2, overlap_comm=False)
    of("plates", "qgz_one_node", 4, 1, **qgz, devices=4)
    of("plates", "qgz_nocontig_offload", 4, 3, **qgz, devices=2, contiguous_gradients=False,
       bucket=110, offload_optimizer={"device": "cpu", "pin_memory": True})
