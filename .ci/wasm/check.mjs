// Runs what Cargo.toml builds: node check.mjs FILE.
import { readFileSync } from "node:fs";
const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]));
console.log(instance.exports.check(), "pools, 0 threads");
