/* alloc/sizes.c: PyTorch's rules of how large a block becomes, and when it is split. */
#include "alloc/pool_state.h"

/* to: a power of two; bytes + to must not overflow. */
static size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) & ~(to - 1); }

static size_t divisions_for(const ebb__alloc_options *options, size_t bytes)
{
    int log2 = 63 - __builtin_clzll((unsigned long long)bytes), at = log2 - 20; /* from 1 MiB */
    if (at < 0) at = 0;
    if (at >= EBB__N_ROUNDING_INTERVALS) at = EBB__N_ROUNDING_INTERVALS - 1;
    return options->roundup_power2_divisions[at];
}

/* Up to a multiple of 2^k / divisions, where 2^k is the power of two below: 1200 bytes by 4 become
 * 1280. */
static size_t round_to_division(size_t bytes, size_t divisions)
{
    if ((bytes & (bytes - 1)) == 0) return bytes;
    size_t power = (size_t)1 << (63 - __builtin_clzll((unsigned long long)bytes));
    return round_up(bytes, power / divisions);
}

static size_t round_request(const ebb__pool *pool, size_t bytes)
{
    if (pool->exact) return round_up(bytes, EBB__EXACT_ROUND_BYTES);
    if (bytes <= EBB__ROUND_BYTES) return round_up(bytes, EBB__ROUND_BYTES);
    size_t divisions = divisions_for(&pool->options, bytes);
    if (divisions > 1 && bytes > EBB__ROUND_BYTES * divisions)
        return round_to_division(bytes, divisions);
    return round_up(bytes, EBB__ROUND_BYTES);
}

static size_t segment_bytes_for(const ebb__pool *pool, size_t rounded)
{
    if (pool->exact) return rounded;
    if (rounded <= EBB__SMALL_MAX_BYTES) return EBB__SMALL_SEGMENT_BYTES;
    if (rounded < EBB__LARGE_SEGMENT_BELOW) return EBB__LARGE_SEGMENT_BYTES;
    return round_up(rounded, EBB__SEGMENT_ROUND_BYTES);
}

static const ebb__owner nobody = { .category = EBB_CAT_TEMPORARY };

ebb__request ebb__request_make(const ebb__pool *pool, size_t bytes, int stream,
                               const ebb__owner *owner)
{
    ebb__request request = { .requested = bytes, .stream = stream };
    request.owner = owner ? owner : &nobody;
    if (bytes > PTRDIFF_MAX / 2) return request;
    request.rounded = round_request(pool, bytes);
    request.segment_bytes = segment_bytes_for(pool, request.rounded);
    bool small = !pool->exact && request.rounded <= EBB__SMALL_MAX_BYTES;
    request.kind = small ? EBB__POOL_SMALL : EBB__POOL_LARGE;
    return request;
}

bool ebb__block_suits(const ebb__pool *pool, const ebb__block *block, const ebb__request *request)
{
    size_t max_split = pool->options.max_split_bytes;
    if (pool->exact) return block->bytes == request->rounded;
    if (max_split == 0 || request->kind == EBB__POOL_SMALL) return true;
    if (request->rounded < max_split) return block->bytes < max_split;
    return block->bytes - request->rounded < pool->options.max_non_split_rounding_bytes;
}

bool ebb__block_splits(const ebb__pool *pool, const ebb__block *block, const ebb__request *request)
{
    size_t rest = block->bytes - request->rounded, max_split = pool->options.max_split_bytes;
    if (pool->exact) return false;
    if (block->segment->kind == EBB__POOL_PLAN) return rest > 0;
    if (request->kind == EBB__POOL_SMALL || block->segment->expandable)
        return rest >= EBB__ROUND_BYTES;
    return (max_split == 0 || request->rounded < max_split) && rest > EBB__LARGE_SPLIT_ABOVE;
}
