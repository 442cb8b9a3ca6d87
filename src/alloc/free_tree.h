/* alloc/free_tree.h: the free blocks of one pool, in the order in which they are preferred.
 * Each stream's blocks are ordered by (key, segment number, offset); the key is the block's bytes, or
 * where it ends for blocks that are looked for by place (by_end).
 *
 * Keys are spread over bins, eight per power of two, with one height-balanced (AVL) tree per bin: most
 * bins hold few blocks, so that trees are shallow.  Links lie in the blocks: nothing allocates or fails. */
#ifndef EBB_ALLOC_FREE_TREE_H
#define EBB_ALLOC_FREE_TREE_H

#include "alloc/pool.h"

enum { EBB__N_BINS = 7 * 64 };

typedef struct ebb__free_tree {
    ebb__block *root[EBB__N_BINS];
    uint64_t filled[EBB__N_BINS / 64]; /* a bit per bin that is not empty */
    size_t n_blocks;
} ebb__free_tree;

/* The block must be in no tree.  While it is in one, its place in the order must not change. */
void ebb__free_tree_insert(ebb__free_tree *tree, ebb__block *block);
void ebb__free_tree_remove(ebb__free_tree *tree, ebb__block *block);

/* The first block of the stream with a key of at least `key`, or NULL. */
ebb__block *ebb__free_tree_find(const ebb__free_tree *tree, int stream, size_t key);

/* Walking by (bin, stream, key, segment number, offset); NULL at the end. */
ebb__block *ebb__free_tree_first(const ebb__free_tree *tree);
ebb__block *ebb__free_tree_next(const ebb__free_tree *tree, const ebb__block *block);

/* Order, links, heights and count are right. */
bool ebb__free_tree_is_valid(const ebb__free_tree *tree);

#endif
