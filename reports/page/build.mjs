// node build.mjs OUT: bundles src/ with the packages in OUT/node_modules into OUT/page.html, and
// that, compressed, into OUT/page_template.cc.
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? ".");
const { buildSync } = createRequire(join(out, "package.json"))("esbuild");

const bundled = (entry, loader) =>
  buildSync({
    entryPoints: [join(here, entry)],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2020",
    charset: "utf8",
    legalComments: "none",
    nodePaths: [join(out, "node_modules")],
    loader,
    logLevel: "warning",
  }).outputFiles[0].text;

// Inside <script> and <style> nothing may look like an end of it.
const script = bundled("src/main.js")
  .replaceAll("</script", "<\\/script")
  .replaceAll("<!--", "<\\!--");
const style = bundled("style.css").replaceAll("</style", "<\\/style");
const html = readFileSync(join(here, "shell.html"), "utf8")
  .replace("/*STYLE*/", () => style.trim())
  .replace("/*SCRIPT*/", () => script.trim());
for (const mark of ["/*DATA*/", "<title>"])
  if (html.split(mark).length !== 2) throw new Error(`the page must hold ${mark} once`);
writeFileSync(join(out, "page.html"), html);

// Octal escapes end after three digits, whatever follows.
const packed = gzipSync(Buffer.from(html, "utf8"), { level: 9 });
const lines = [];
for (let i = 0; i < packed.length; i += 40)
  lines.push(
    `    "${[...packed.subarray(i, i + 40)].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("")}"`,
  );
writeFileSync(
  join(out, "page_template.cc"),
  `// Written by reports/page/build.mjs: page.html, compressed by gzip.
#include "sim/io/page_template.h"

namespace ddpsim::io {
namespace {

constexpr char kPage[] =
${lines.join("\n")};

}  // namespace

PageTemplate page_template() { return {kPage, ${packed.length}, ""}; }

}  // namespace ddpsim::io
`,
);
console.log(`page.html: ${html.length} characters, ${packed.length} bytes compressed`);
