/* alloc/free_tree.c: an AVL tree with parent links. */
#include "alloc/free_tree.h"

#include "alloc/pool_state.h"

static size_t key(const ebb__block *block)
{
    return block->by_end ? block->offset + block->bytes : block->bytes;
}

/* Eight bins per power of two, in units of 512 bytes. */
static int bin_of(size_t key_bytes)
{
    uint64_t n = key_bytes / EBB__ROUND_BYTES;
    if (n < 8) return (int)n;
    int power = 63 - __builtin_clzll(n);
    return (power - 2) * 8 + (int)((n >> (power - 3)) & 7);
}

static bool is_before(const ebb__block *a, const ebb__block *b)
{
    if (a->stream != b->stream) return a->stream < b->stream;
    if (key(a) != key(b)) return key(a) < key(b);
    if (a->segment_number != b->segment_number) return a->segment_number < b->segment_number;
    return a->offset < b->offset;
}

static int height(const ebb__block *block) { return block ? block->height : 0; }

static void update_height(ebb__block *block)
{
    int left = height(block->child[0]), right = height(block->child[1]);
    block->height = (short)(1 + (left > right ? left : right));
}

static void replace_child(ebb__block **root, ebb__block *parent, const ebb__block *old,
                          ebb__block *with)
{
    if (!parent)
        *root = with;
    else
        parent->child[parent->child[1] == old] = with;
    if (with) with->parent = parent;
}

/* Lifts top's child of that side above top, and returns it. */
static ebb__block *rotate(ebb__block **root, ebb__block *top, int side)
{
    ebb__block *riser = top->child[side], *inner = riser->child[!side];
    replace_child(root, top->parent, top, riser);
    top->child[side] = inner;
    if (inner) inner->parent = top;
    riser->child[!side] = top;
    top->parent = riser;
    update_height(top);
    update_height(riser);
    return riser;
}

/* Restores heights and balance from `block` up; stops where a subtree is as high as before. */
static void rebalance(ebb__block **root, ebb__block *block)
{
    while (block) {
        int before = block->height;
        int lean = height(block->child[1]) - height(block->child[0]);
        if (lean > 1 || lean < -1) {
            int side = lean > 0;
            ebb__block *heavy = block->child[side];
            bool inner_is_higher = height(heavy->child[!side]) > height(heavy->child[side]);
            if (inner_is_higher) rotate(root, heavy, !side);
            block = rotate(root, block, side);
        } else {
            update_height(block);
        }
        if (block->height == before) return;
        block = block->parent;
    }
}

void ebb__free_tree_insert(ebb__free_tree *tree, ebb__block *block)
{
    int bin = bin_of(key(block));
    ebb__block *parent = NULL, **root = &tree->root[bin], **link = root;
    while (*link) {
        parent = *link;
        link = &parent->child[is_before(parent, block)];
    }
    *link = block;
    block->parent = parent;
    block->child[0] = block->child[1] = NULL;
    block->height = 1;
    tree->n_blocks++;
    tree->filled[bin / 64] |= (uint64_t)1 << bin % 64;
    rebalance(root, parent);
}

/* Puts the next block in the order, which has no left child, into block's place.  Returns where
 * the tree has become lower. */
static ebb__block *replace_by_successor(ebb__block **root, ebb__block *block)
{
    ebb__block *heir = block->child[1];
    while (heir->child[0]) heir = heir->child[0];
    ebb__block *lowered = heir;
    if (heir->parent != block) {
        lowered = heir->parent;
        replace_child(root, heir->parent, heir, heir->child[1]);
        heir->child[1] = block->child[1];
        heir->child[1]->parent = heir;
    }
    heir->child[0] = block->child[0];
    heir->child[0]->parent = heir;
    heir->height = block->height;
    replace_child(root, block->parent, block, heir);
    return lowered;
}

void ebb__free_tree_remove(ebb__free_tree *tree, ebb__block *block)
{
    int bin = bin_of(key(block));
    ebb__block *lowered = block->parent, **root = &tree->root[bin];
    if (block->child[0] && block->child[1])
        lowered = replace_by_successor(root, block);
    else
        replace_child(root, block->parent, block, block->child[block->child[0] == NULL]);
    tree->n_blocks--;
    if (!*root) tree->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
    rebalance(root, lowered);
}

static ebb__block *find_in_bin(ebb__block *at, int stream, size_t least)
{
    ebb__block *found = NULL;
    while (at) {
        bool too_early = at->stream == stream ? key(at) < least : at->stream < stream;
        found = too_early ? found : at;
        at = at->child[too_early];
    }
    return found && found->stream == stream ? found : NULL;
}

/* The first bin from `bin` on that is not empty; EBB__N_BINS: none. */
static int next_filled(const ebb__free_tree *tree, int bin)
{
    for (int word = bin / 64; word < EBB__N_BINS / 64; word++) {
        uint64_t bits = tree->filled[word];
        if (word == bin / 64) bits &= ~(uint64_t)0 << bin % 64;
        if (bits) return word * 64 + __builtin_ctzll(bits);
    }
    return EBB__N_BINS;
}

ebb__block *ebb__free_tree_find(const ebb__free_tree *tree, int stream, size_t least)
{
    int bin = next_filled(tree, bin_of(least));
    for (; bin < EBB__N_BINS; bin = next_filled(tree, bin + 1)) {
        ebb__block *found = find_in_bin(tree->root[bin], stream, least);
        if (found) return found;
    }
    return NULL;
}

static ebb__block *lowest(ebb__block *block)
{
    while (block && block->child[0]) block = block->child[0];
    return block;
}

static ebb__block *first_from(const ebb__free_tree *tree, int bin)
{
    bin = bin < EBB__N_BINS ? next_filled(tree, bin) : bin;
    return bin < EBB__N_BINS ? lowest(tree->root[bin]) : NULL;
}

ebb__block *ebb__free_tree_first(const ebb__free_tree *tree) { return first_from(tree, 0); }

ebb__block *ebb__free_tree_next(const ebb__free_tree *tree, const ebb__block *block)
{
    int bin = bin_of(key(block));
    if (block->child[1]) return lowest(block->child[1]);
    while (block->parent && block->parent->child[1] == block) block = block->parent;
    return block->parent ? block->parent : first_from(tree, bin + 1);
}

/* The depth is logarithmic, so recursion is safe.  Counts the subtree's blocks; -1: broken. */
static int64_t count_valid(const ebb__block *block, const ebb__block *parent, int bin)
{
    if (!block) return 0;
    int left = height(block->child[0]), right = height(block->child[1]);
    if (bin_of(key(block)) != bin || block->parent != parent || left - right > 1 ||
        right - left > 1)
        return -1;
    if (block->height != 1 + (left > right ? left : right)) return -1;
    int64_t n_left = count_valid(block->child[0], block, bin);
    int64_t n_right = n_left < 0 ? -1 : count_valid(block->child[1], block, bin);
    return n_right < 0 ? -1 : n_left + 1 + n_right;
}

static bool is_in_order(const ebb__free_tree *tree)
{
    const ebb__block *last = NULL;
    for (const ebb__block *at = ebb__free_tree_first(tree); at;
         at = ebb__free_tree_next(tree, at)) {
        if (last && bin_of(key(last)) == bin_of(key(at)) && !is_before(last, at)) return false;
        last = at;
    }
    return true;
}

bool ebb__free_tree_is_valid(const ebb__free_tree *tree)
{
    int64_t n = 0;
    for (int bin = 0; bin < EBB__N_BINS; bin++) {
        int64_t n_bin = count_valid(tree->root[bin], NULL, bin);
        bool filled = tree->filled[bin / 64] >> bin % 64 & 1;
        if (n_bin < 0 || filled != (n_bin > 0)) return false;
        n += n_bin;
    }
    return n == (int64_t)tree->n_blocks && is_in_order(tree);
}
