#!/bin/sh
# Removes from a virtual environment what a server or a client never reads; it goes on working.
set -eu
cd "$1"/lib/python*/site-packages

# Tests of others, and what extensions of others are compiled from.
find . -type d -name tests -prune -exec rm -r {} +
find . -type f \( -name '*.c' -o -name '*.h' -o -name '*.px[di]' -o -name '*.pyi' -o -name '*.pyx' \) -delete
rm -rf pyarrow/include torch/include torch/share torch/test
# All programs but the one that is looked for when torch is imported.
[ ! -d torch/bin ] || find torch/bin -type f ! -name torch_shm_manager -delete

# Arrow over the network.
find . -path './pyarrow/*' \( -name '*flight*' -o -name '*s3*' \) -delete

# Compiled modules that only torch.compile and exports load.
for package in mpmath networkx sympy torch/_dynamo torch/_inductor torch/onnx; do
  [ ! -d "$package" ] || find "$package" -name '*.pyc' -delete
done
