/* fiber.h: stacks that one thread of the host switches between.  The sanitizers are told. */
#ifndef EBB_TESTS_EMU_FIBER_H
#define EBB_TESTS_EMU_FIBER_H

struct emu_fiber {
    const void *stack;     /* its lowest address; the host thread's own is found when it first switches */
    unsigned long bytes;   /* of the stack */
    void *stack_pointer;   /* while it does not run */
    emu_fiber *resumed_by;
    void *tsan;            /* ThreadSanitizer's view of it */
    int thread;            /* which emulated thread runs on it */
};

/* `entry` never returns, and calls emu_fiber_entered() first.  Between two blocks a fiber may go on with another host
 * thread: what it reads of thread-local variables after a switch, it reads in a function of its own. */
emu_fiber *emu_fiber_new(void (*entry)());
/* The calling host thread as a fiber, to switch back to. */
emu_fiber emu_fiber_of_host();
void emu_fiber_switch(emu_fiber *from, emu_fiber *to);
void emu_fiber_entered(emu_fiber *me);

/* For ThreadSanitizer: what was written before release(p) can be read after acquire(p).  Switching alone
 * orders nothing. */
#ifdef EMU_TSAN
extern "C" void __tsan_acquire(void *p);
extern "C" void __tsan_release(void *p);
static inline void emu_acquire(void *p) { __tsan_acquire(p); }
static inline void emu_release(void *p) { __tsan_release(p); }
#else
static inline void emu_acquire(void *) {}
static inline void emu_release(void *) {}
#endif

#endif
