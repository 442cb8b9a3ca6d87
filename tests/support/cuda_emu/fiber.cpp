/* fiber.cpp: stacks and the switch.  Never instrumented: EMU_ASAN and EMU_TSAN say that the kernels are. */
#include "fiber.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

enum : size_t { GUARD_BYTES = 4096, STACK_BYTES = 256 << 10 };

#ifdef EMU_TSAN
extern "C" void *__tsan_create_fiber(unsigned flags);
extern "C" void __tsan_switch_to_fiber(void *fiber, unsigned flags);
extern "C" void *__tsan_get_current_fiber(void);
enum { TSAN_NO_ORDER = 1 };
#endif
#ifdef EMU_ASAN
extern "C" void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t bytes);
extern "C" void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom, size_t *bytes);
#endif

/* Saves what a call must preserve on the old stack, takes it from the new one, returns there. */
#ifndef __x86_64__
#error "the emulator's switch of stacks is written for x86-64"
#endif
extern "C" void emu_switch_stacks(void **save_old, void *load_new);
__asm__(".text\n.globl emu_switch_stacks\n.type emu_switch_stacks,@function\nemu_switch_stacks:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size emu_switch_stacks,.-emu_switch_stacks\n");

emu_fiber *emu_fiber_new(void (*entry)())
{
    enum { SAVED_REGISTERS = 6 };
    void *memory = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
        fputs("EMU ERROR: no memory for a stack\n", stderr);
        abort();
    }
    emu_fiber *fiber = new emu_fiber();
    fiber->stack = (char *)memory + GUARD_BYTES;
    fiber->bytes = STACK_BYTES;
    void **top = (void **)((char *)memory + GUARD_BYTES + STACK_BYTES);
    *--top = nullptr; /* the entry's return address; keeps its stack aligned to 16 */
    *--top = (void *)entry;
    for (int i = 0; i < SAVED_REGISTERS; i++) *--top = nullptr;
    fiber->stack_pointer = top;
#ifdef EMU_TSAN
    fiber->tsan = __tsan_create_fiber(0);
#endif
    return fiber;
}

emu_fiber emu_fiber_of_host()
{
    emu_fiber host = {};
#ifdef EMU_TSAN
    host.tsan = __tsan_get_current_fiber();
#endif
    return host;
}

/* AddressSanitizer says what the stack was that `me` was resumed from. */
static void resumed(emu_fiber *me, void *fake_stack)
{
    (void)me, (void)fake_stack;
#ifdef EMU_ASAN
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake_stack, &me->resumed_by->stack, &bytes);
    me->resumed_by->bytes = bytes;
#endif
}

void emu_fiber_switch(emu_fiber *from, emu_fiber *to)
{
    void *fake_stack = nullptr;
    to->resumed_by = from;
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(to->tsan, TSAN_NO_ORDER);
#endif
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&fake_stack, to->stack, to->bytes);
#endif
    emu_switch_stacks(&from->stack_pointer, to->stack_pointer);
    resumed(from, fake_stack);
}

void emu_fiber_entered(emu_fiber *me) { resumed(me, nullptr); }
