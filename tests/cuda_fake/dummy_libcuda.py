#!/usr/bin/env python3
"""dummy_libcuda.py CUDA_H: C source of a libcuda.so.1 in which every function of the driver is there and does
nothing, so that cuDNN can compile attention plans on a machine without a GPU.  For that one test only."""
import re
import sys

# What must say more than "done": a token for each thing that is loaded, and that no device is there.
ANSWERS = {
    "cuInit": "(unsigned flags) { (void)flags; return 100; }",
    "cuDriverGetVersion": "(int *version) { *version = 13000; return 0; }",
    "cuGetExportTable": "(const void **table, const void *id) { (void)id; *table = 0; return 500; }",
    "cuDeviceGetCount": "(int *n) { *n = 0; return 0; }",
    "cuGetErrorString": '(int error, const char **text) { (void)error; *text = "dummy"; return 0; }',
    "cuGetErrorName": '(int error, const char **text) { (void)error; *text = "dummy"; return 0; }',
    "cuOccupancyMaxActiveClusters": "(int *n, ...) { *n = 16; return 0; }",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": "(int *n, ...) { *n = 1; return 0; }",
}
for name in ("cuLibraryLoadData", "cuLibraryGetKernel", "cuLibraryGetModule", "cuKernelGetFunction",
             "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleGetFunction"):
    ANSWERS[name] = "(void **loaded, ...) { *loaded = &token; return 0; }"

names = set(re.findall(r"\bcu[A-Z]\w*\b", open(sys.argv[1]).read()))
print("static int token;")
for name in sorted(names | set(ANSWERS)):
    print(f"int {name}{ANSWERS.get(name, '(void) { return 0; }')}")
