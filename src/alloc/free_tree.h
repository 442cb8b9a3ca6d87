/* alloc/free_tree.h: the free blocks of one pool, in the order in which they are preferred.
 * A height-balanced (AVL) tree whose links lie in the blocks, so nothing here allocates or fails.
 * Order: (stream, key, segment number, offset); the key is the block's bytes, or where it ends for
 * blocks that are looked for by place (by_end). */
#ifndef EBB_ALLOC_FREE_TREE_H
#define EBB_ALLOC_FREE_TREE_H

#include "alloc/pool.h"

typedef struct ebb__free_tree {
    ebb__block *root;
    size_t n_blocks;
} ebb__free_tree;

/* The block must be in no tree.  While it is in one, its place in the order must not change. */
void ebb__free_tree_insert(ebb__free_tree *tree, ebb__block *block);
void ebb__free_tree_remove(ebb__free_tree *tree, ebb__block *block);

/* The first block of the stream with a key of at least `bytes`, or NULL. */
ebb__block *ebb__free_tree_find(const ebb__free_tree *tree, int stream, size_t bytes);

/* Walking in order; NULL at the end. */
ebb__block *ebb__free_tree_first(const ebb__free_tree *tree);
ebb__block *ebb__free_tree_next(const ebb__block *block);

/* Order, links, heights and count are right. */
bool ebb__free_tree_is_valid(const ebb__free_tree *tree);

#endif
