/* The index of free blocks against a sorted array. */
#include <stdlib.h>
#include <string.h>

#include "alloc/free_tree.h"
#include "alloc/pool_state.h"
#include "core/rng.h"
#include "support/support.h"

enum { N_BLOCKS = 600 };

static ebb__block blocks[N_BLOCKS];
static bool inside[N_BLOCKS];

/* Few distinct values per key, so that every later key decides at times. */
static void draw_blocks(void)
{
    for (int i = 0; i < N_BLOCKS; i++) {
        uint32_t word[4];
        ebb__philox(7, (uint64_t)i, word);
        blocks[i] = (ebb__block){ .stream = (int)(word[0] % 3) - 1,
                                  .bytes = 512 * (1 + word[1] % 20),
                                  .segment_number = word[2] % 4,
                                  .offset = 512 * (size_t)i };
    }
}

/* Bins of the sizes drawn here: eight per power of two. */
static size_t bin_of(size_t bytes)
{
    size_t n = bytes / 512;
    return n < 16 ? n : 16 + (n - 16) / 2;
}

static int order(const void *left, const void *right)
{
    const ebb__block *a = *(ebb__block *const *)left, *b = *(ebb__block *const *)right;
    if (bin_of(a->bytes) != bin_of(b->bytes)) return bin_of(a->bytes) < bin_of(b->bytes) ? -1 : 1;
    if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    if (a->segment_number != b->segment_number)
        return a->segment_number < b->segment_number ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static size_t sorted(ebb__block *list[N_BLOCKS])
{
    size_t n = 0;
    for (int i = 0; i < N_BLOCKS; i++)
        if (inside[i]) list[n++] = &blocks[i];
    qsort(list, n, sizeof *list, order);
    return n;
}

static void check_walk(const ebb__free_tree *tree)
{
    ebb__block *list[N_BLOCKS];
    size_t n = sorted(list), i = 0;
    cr_assert(ebb__free_tree_is_valid(tree));
    cr_assert(tree->n_blocks == n);
    for (ebb__block *at = ebb__free_tree_first(tree); at; at = ebb__free_tree_next(tree, at), i++)
        cr_assert(i < n && at == list[i], "place %zu of the order is wrong", i);
    cr_assert(i == n);
}

static void check_find(const ebb__free_tree *tree, int stream, size_t bytes)
{
    ebb__block *list[N_BLOCKS], *expected = NULL;
    size_t n = sorted(list);
    for (size_t i = 0; i < n && !expected; i++)
        if (list[i]->stream == stream && list[i]->bytes >= bytes) expected = list[i];
    cr_assert(ebb__free_tree_find(tree, stream, bytes) == expected, "stream %d, %zu bytes", stream,
              bytes);
}

Test(free_tree, agrees_with_a_sorted_array_under_random_changes)
{
    ebb__free_tree tree = { 0 };
    draw_blocks();
    for (uint64_t step = 0; step < 6000; step++) {
        uint32_t word[4];
        ebb__philox(8, step, word);
        uint32_t i = word[0] % N_BLOCKS;
        if (inside[i])
            ebb__free_tree_remove(&tree, &blocks[i]);
        else
            ebb__free_tree_insert(&tree, &blocks[i]);
        inside[i] = !inside[i];
        if (step % 16 == 0) check_find(&tree, (int)(word[1] % 5) - 2, 512 * (size_t)(word[2] % 23));
        if (step % 64 == 0) check_walk(&tree);
    }
    for (int i = 0; i < N_BLOCKS; i++)
        if (inside[i]) ebb__free_tree_remove(&tree, &blocks[i]);
    memset(inside, 0, sizeof inside);
    check_walk(&tree);
    for (int bin = 0; bin < EBB__N_BINS; bin++) cr_assert(tree.root[bin] == NULL);
}

Test(free_tree, stays_low_when_blocks_come_in_order)
{
    ebb__free_tree tree = { 0 };
    for (int i = 0; i < N_BLOCKS; i++) {
        blocks[i] = (ebb__block){ .bytes = 1024, .offset = 1024 * (size_t)i };
        ebb__free_tree_insert(&tree, &blocks[i]);
    }
    cr_assert(ebb__free_tree_is_valid(&tree));
    cr_assert(tree.root[2]->height <= 13, "height %d for 600 blocks", tree.root[2]->height);
}

Test(free_tree, a_wrong_order_or_a_broken_link_is_found)
{
    ebb__free_tree tree = { 0 };
    for (int i = 0; i < 10; i++) {
        blocks[i] = (ebb__block){ .bytes = 512 * (1 + (size_t)i) };
        ebb__free_tree_insert(&tree, &blocks[i]);
    }
    blocks[4].bytes = 99 * 512;
    cr_assert_not(ebb__free_tree_is_valid(&tree));
    blocks[4].bytes = 5 * 512;
    cr_assert(ebb__free_tree_is_valid(&tree));
    blocks[9].parent = &blocks[0];
    cr_assert_not(ebb__free_tree_is_valid(&tree));
}
