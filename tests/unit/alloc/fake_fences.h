/* fake_fences.h: streams without work: the test says how far each has come. */
#ifndef EBB_TESTS_FAKE_FENCES_H
#define EBB_TESTS_FAKE_FENCES_H

#include "alloc/pool.h"

enum { FAKE_STREAMS = 4 };

typedef struct fake_fences {
    uint64_t given[FAKE_STREAMS], finished[FAKE_STREAMS];
    int n_waits;
} fake_fences;

static inline uint64_t fake_record(void *self, int stream)
{
    return ++((fake_fences *)self)->given[stream];
}

static inline bool fake_is_done(void *self, int stream, uint64_t ticket)
{
    return ((fake_fences *)self)->finished[stream] >= ticket;
}

static inline void fake_wait(void *self, int stream, uint64_t ticket)
{
    fake_fences *f = self;
    f->n_waits++;
    if (f->finished[stream] < ticket) f->finished[stream] = ticket;
}

static inline ebb__fences fake_fences_of(fake_fences *fences)
{
    return (ebb__fences){
        .record = fake_record, .is_done = fake_is_done, .wait = fake_wait, .self = fences
    };
}

#endif
