// Starts the prepared Lean: mounts host folders, sets LEAN_PATH, passes the arguments, and removes the package's
// debugging lines from standard error.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const build = path.join(__dirname, "build");
const library = path.join(build, "lib");
const args = process.argv.slice(2);

const files = args.filter((argument) => !argument.startsWith("-") && fs.existsSync(argument));
const wanted = new Set([library, process.cwd(), ...files.map((file) => path.dirname(path.resolve(file)))]);
for (const extra of (process.env.LEAN_PATH ?? "").split(":")) if (extra) wanted.add(path.resolve(extra));
// A folder inside a mounted folder is not mounted separately.
const mounts = [...wanted].filter((d) => d !== "/" && ![...wanted].some((o) => o !== d && d.startsWith(o + "/")));
process.env.SGS_LEAN_MOUNTS = JSON.stringify(mounts);
process.env.LEAN_SYSROOT ??= build;
process.env.LEAN_PATH = [library, process.env.LEAN_PATH].filter(Boolean).join(":");

// Do not read standard input as a stream: a stream does not wait for further input, and the reader waits until its
// buffer is full. Reporting an end of file after each piece makes the reader process that piece.
Object.defineProperty(process, "stdin", { value: { fd: 0 } });
const read = fs.readSync;
let full = true;
fs.readSync = (fd, ...where) => {
  if (fd !== 0) return read(fd, ...where);
  full = !full;
  return full ? 0 : read(fd, ...where);
};
// A pipe may accept only part of a long line, or nothing at the moment. Without a retry, the rest would be lost.
const write = fs.writeSync;
const pause = new Int32Array(new SharedArrayBuffer(4));
fs.writeSync = (fd, text, ...where) => {
  if (typeof text !== "string") return write(fd, text, ...where);
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) {
    try {
      at += write(fd, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(pause, 0, 0, 1);
    }
  }
  return bytes.length;
};
globalThis.sgsErr = (line) => {
  if (!/^(\[DEBUG:|  - .*\.olean$|  mainModule\? = )/.test(line)) fs.writeSync(2, line + "\n");
};
// By default, Node prints the line that threw, which here is the whole program, before the error.
process.on("uncaughtException", (error) => {
  fs.writeSync(2, String(error?.stack ?? error).slice(0, 4000) + "\n");
  process.exit(1);
});
require(path.join(build, "lean.js"));
