/* ebb/context.h: a context owns the pools, limits, generators and the default device.
 * Handles of different contexts do not mix. */
#ifndef EBB_CONTEXT_H
#define EBB_CONTEXT_H

#include <ebb/status.h>

typedef struct ebb_context_options {
    size_t struct_bytes;      /* sizeof(ebb_context_options), so that it can grow */
    const char *device;       /* "cpu" (NULL means this), "cuda" or "cuda:1"; "dry:cpu", "dry:cuda" or
                                 "dry:cuda:PROFILE", a name or a FILE.json (see devices/) */
    int threads;              /* compute threads; 0: all cores of the affinity mask */
    uint64_t seed;            /* of the context's generator */
    size_t memory_limit_bytes; /* of reserved bytes in the pool; 0: none, but on an accelerator all of its
                                 memory; SIZE_MAX: none */
    size_t host_limit_bytes;  /* of reserved bytes for offloaded tensors; 0: none */
    bool check_recompute;     /* what a segment makes again must have the bytes of the first run:
                                 ESTATE where it has not */
    int checks;               /* 0 none, 1 asserts, 2 invariants and undeclared-read checks,
                                 3 full heap walk per allocation, each kernel of an
                                 accelerator waited for; -1: the build's default */
    const char *allocator;    /* "key:value,key:value"; NULL: none.  Applied after the environment
                                 variable EBB_ALLOC_CONF.  The keys, as in PyTorch unless noted:
                                 expandable_segments:True, garbage_collection_threshold:0.8 (of the
                                 limit), max_non_split_rounding_mb:20, max_split_size_mb:64,
                                 roundup_power2_divisions:4 or [256:1,512:2,>:4];
                                 ebb's own: deferred_release_mb:64, offset_plan:True (training) */
} ebb_context_options;

EBB_BEGIN_DECLS

/* Owner: *out is the caller's; free it with ebb_context_free() after all of its tensors.
 * `options` may be NULL.  Errors: EINVAL (a key or value of allocator), EDEVICE (unknown device, or none of that kind
 * here; says why), ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_context_new(ebb_context **out, const ebb_context_options *options);
/* NULL is a no-op.  Tensors still alive keep the context's memory until the last one is dropped. */
EBB_API void ebb_context_free(ebb_context *ctx);
/* As ebb_drop() for a tensor: frees what the variable holds, and makes it NULL. */
EBB_API void ebb_context_drop(ebb_context **variable);
/* Declares a variable that is freed when the scope ends, early returns included. */
#define EBB_LOCAL_CONTEXT(name) __attribute__((cleanup(ebb_context_drop))) ebb_context *name = NULL

EBB_API const char *ebb_context_device(const ebb_context *ctx); /* "cpu", "cuda:0", "dry:cuda:h100-80gb" */
EBB_API bool ebb_context_is_dry(const ebb_context *ctx);
EBB_API int ebb_context_threads(const ebb_context *ctx);

/* The counter-based generator (Philox 4x32-10; Salmon et al., SC'11).  Draws are a pure function
 * of (seed, offset); an op that draws takes the offsets it needs and moves the generator on. */
EBB_API void ebb_seed(ebb_context *ctx, uint64_t seed);
EBB_API uint64_t ebb_rng_offset(const ebb_context *ctx);
EBB_API void ebb_rng_set_offset(ebb_context *ctx, uint64_t offset);

/* Names the part of the model that runs ("blocks.3"), shown by every report.  Returns the scope
 * that was set before, to restore it.  `name` must outlive the context's graph; NULL: none. */
EBB_API const char *ebb_scope(ebb_context *ctx, const char *name);

EBB_END_DECLS
#endif
