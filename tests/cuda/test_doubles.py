#!/usr/bin/env python3
"""Tests of doubles.py: what it must find, and what it must leave alone."""
import unittest

from doubles import breaches, kernels, ptx_texts

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n\n"


def entry(name, *lines, parameter=".param .u64 p"):
    body = "".join(f"\t{line};\n" for line in lines)
    return f".visible .entry {name}(\n\t{parameter}\n)\n.maxntid 256\n{{\n\t.reg .f64 \t%fd<3>;\n{body}\tret;\n\n}}\n"


class Doubles(unittest.TestCase):
    def test_an_f32_kernel_with_a_double_product_is_found(self):
        found, n = breaches(HEAD + entry("_Z5scalePf", "cvt.f64.f32 \t%fd1, %f1", "mul.f64 \t%fd2, %fd1, %fd1"))
        self.assertEqual(n, 1)
        self.assertEqual(found, [("scale(float*)", "cvt.f64.f32 \t%fd1, %f1")])

    def test_a_double_parameter_is_no_excuse(self):
        text = entry("_Z5scaleIfEvPT_d", "ld.param.f64 \t%fd1, [q]", "cvt.rn.f32.f64 \t%f1, %fd1",
                     parameter=".param .f64 q")
        self.assertEqual(len(breaches(HEAD + text)[0]), 1)

    def test_a_conditional_instruction_is_found(self):
        self.assertEqual(len(breaches(HEAD + entry("_Z5scalePf", "@%p1 add.f64 \t%fd1, %fd1, %fd2"))[0]), 1)

    def test_a_kernel_that_says_so_is_left_alone(self):
        text = entry("_Z5scaleIdEvPT_S0_", "mul.f64 \t%fd2, %fd1, %fd1")
        text += entry("_Z11squares_f64PKf", "fma.rn.f64 \t%fd2, %fd1, %fd1, %fd2")
        self.assertEqual(breaches(HEAD + text), ([], 2))

    def test_registers_of_64_bits_are_no_doubles(self):
        self.assertEqual(breaches(HEAD + entry("_Z4copyPm", "ld.global.u64 \t%rd1, [%rd2]")), ([], 1))

    def test_ptx_is_found_in_a_library(self):
        data = b"\x7fELF\0\0" + (HEAD + entry("a")).encode() + b"\0junk\0" + (HEAD + entry("b")).encode() + b"\0"
        self.assertEqual([name for text in ptx_texts(data) for name, _ in kernels(text)], ["a", "b"])


if __name__ == "__main__":
    unittest.main()
