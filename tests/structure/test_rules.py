#!/usr/bin/env python3
"""Each rule of rules.py finds a planted breach, names its line, and leaves lawful text alone."""
import tempfile
import unittest
from pathlib import Path

import rules


def breaches_of(path, text):
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        (root / "src").mkdir()
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return rules.check_tree(root)[0]


class Rules(unittest.TestCase):
    def assert_breach(self, path, text, line, word):
        found = breaches_of(path, text)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{path}:{line}: "), found[0])
        self.assertIn(word, found[0])

    def assert_lawful(self, path, text):
        self.assertEqual(breaches_of(path, text), [])

    def test_an_upward_include_is_named(self):
        self.assert_breach("src/core/a.c", '#include "core/mem.h"\n\n#include "ops/ops.h"\n', 3, "ops")
        self.assert_breach("src/alloc/a.h", '#  include "device/device.h"\n', 1, "device")

    def test_nn_and_optim_do_not_include_each_other(self):
        self.assert_breach("src/nn/a.c", '#include "optim/optim.h"\n', 1, "optim")
        self.assert_breach("src/optim/a.c", '#include "nn/model.h"\n', 1, "nn")

    def test_programs_see_public_headers_only(self):
        self.assert_breach("src/cli/a.c", '#include "core/mem.h"\n', 1, "public headers only")
        self.assert_breach("lessons/a.c", '#include "tensor/tensor.h"\n', 1, "public headers only")
        self.assert_breach("bench/a.c", '#include "alloc/pool.h"\n', 1, "public headers only")
        self.assert_lawful("src/cli/a.c", '#include <ebb/ebb.h>\n#include "cli.h"\n')

    def test_a_downward_include_is_lawful(self):
        self.assert_lawful("src/train/a.c", '#include "nn/model.h"\n#include "core/mem.h"\n')

    def test_a_header_without_its_folder_is_named(self):
        self.assert_breach("src/core/a.c", '#include "mem.h"\n', 1, "folder/mem.h")

    def test_a_public_header_in_quotes_is_named(self):
        self.assert_breach("src/core/a.c", '#include "ebb/types.h"\n', 1, "<ebb/types.h>")

    def test_cuda_headers_stay_in_their_place(self):
        self.assert_breach("src/alloc/a.c", "#include <cuda_runtime.h>\n", 1, "CUDA")
        self.assert_breach("src/ops/op_gelu.c", "#include <cublas_v2.h>\n", 1, "CUDA")
        self.assert_lawful("src/device/cuda/stream.c", "#include <cuda.h>\n")
        self.assert_breach("src/ops/op_gelu.c", '#include "cublasLt.h"\n', 1, "CUDA")
        self.assert_breach("src/ops/op_gelu.h", "#include <mma.h>\n", 1, "CUDA")
        self.assert_breach("src/ops/op_gelu.cu", "#include <vector_types.h>\n", 1, "CUDA")
        self.assert_breach("src/train/a.cuh", "#include <cuda_fp16.h>\n", 1, "CUDA")
        self.assert_lawful("src/ops/cuda/op_gelu.cu", "#include <cuda_runtime.h>\n")
        self.assert_lawful("src/ops/cuda/rows.cuh", "#include <mma.h>\n")

    def test_cuda_headers_do_not_come_through_others(self):
        with tempfile.TemporaryDirectory() as tmp:
            root = Path(tmp)
            (root / "src/ops/cuda").mkdir(parents=True)
            (root / "src/ops/cuda/kernel.h").write_text("#include <cuda_runtime.h>\n")
            (root / "src/ops/cuda/rows.h").write_text('#include "ops/cuda/kernel.h"\n')
            (root / "src/ops/cuda/plain.h").write_text("#include <stdint.h>\n")
            (root / "src/ops/a.c").write_text('#include "ops/cuda/plain.h"\n#include "ops/cuda/rows.h"\n')
            found = rules.check_tree(root)[0]
            self.assertEqual(len(found), 1, found)
            self.assertTrue(found[0].startswith("src/ops/a.c:2: "), found[0])

    def test_the_plugin_is_a_program_of_its_own(self):
        self.assert_breach("src/ops/cuda/a.cu", '#include "autograd/node.h"\n', 1, "autograd")
        self.assert_breach("src/ops/cuda/a.cu", '#include "ops/kernels.h"\n', 1, "kernels.h")
        self.assert_breach("src/device/cuda/a.c", '#include "core/mem.h"\n', 1, "mem.h")
        self.assert_lawful("src/device/cuda/a.c", '#include "ops/ops.def"\nvoid f(void *p) { free(p); }\n')
        self.assert_lawful("src/ops/cuda/a.cu", '#include "core/rng.h"\n#include "device/cuda/cuda.h"\n')

    def test_a_second_kinds_plugin_keeps_the_same_rules(self):
        self.assert_lawful("src/device/npu/a.c", '#include "device/accel.h"\n#include "ops/npu/a.h"\n'
                           'void f(void *p) { free(p); }\n')
        self.assert_breach("src/device/npu/a.c", '#include "core/mem.h"\n', 1, "the npu plugin may not include it")
        self.assert_breach("src/ops/npu/a.c", '#include "device/cuda/cuda.h"\n', 1, "the npu plugin may not include it")
        self.assert_breach("src/device/npu/a.c", "#include <cuda.h>\n", 1, "CUDA headers stand only in")

    def test_kernel_files_keep_the_other_rules(self):
        self.assert_breach("src/ops/cuda/a.cu", 'void f(void) { printf("x"); }\n', 1, "printf")
        self.assert_breach("src/ops/cuda/a.cuh", "\n" * 601, 601, "601 lines")

    def test_the_library_neither_exits_nor_prints(self):
        self.assert_breach("src/core/a.c", "\nvoid f(void) { exit(1); }\n", 2, "exit")
        self.assert_breach("src/nn/a.c", 'void f(void) { printf("x"); }\n', 1, "printf")
        self.assert_breach("src/nn/a.c", 'void f(void) { fputs("x", stderr); }\n', 1, "stderr")
        self.assert_lawful("src/cli/a.c", 'int main(void) { printf("x"); exit(0); }\n')
        self.assert_lawful("src/core/a.c", 'void f(char *b) { snprintf(b, 9, "exit(1)"); } // exit(1)\n')
        self.assert_lawful("src/core/a.c", "/* printf(\n printf( */\nvoid on_exit(int); void x(void) { do_exit(1); }\n")

    def test_host_memory_comes_from_one_place(self):
        self.assert_breach("src/ops/a.c", "void *f(void) { return malloc(1); }\n", 1, "core/mem.h")
        self.assert_breach("src/ops/a.c", "void f(void *p) {\n    free(p); }\n", 2, "core/mem.h")
        self.assert_lawful("src/core/mem.c", "void *f(void) { return malloc(1); }\n")
        self.assert_lawful("src/ops/a.c", "void f(hook *h) { ebb__free(h); h->free(h); h.free(h); pool_free(h); }\n")

    def test_a_long_file_is_named(self):
        self.assert_breach("src/core/a.c", "\n" * 601, 601, "601 lines")
        self.assert_lawful("src/core/a.c", "\n" * 600)

    def test_a_wide_line_is_named(self):
        self.assert_breach("src/core/a.c", "\n" + "/" * 121 + "\n", 2, "121 columns")
        self.assert_lawful("src/core/a.c", "/" * 120 + "\n")

    def test_a_vague_name_is_named(self):
        self.assert_breach("src/core/utils.c", "\n", 1, "utils")

    def test_an_unknown_folder_is_named(self):
        self.assert_breach("src/extra/a.c", "\n", 1, "extra")


if __name__ == "__main__":
    unittest.main()
