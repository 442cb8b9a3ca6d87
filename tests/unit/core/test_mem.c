/* Host allocations: counted, and made to fail one by one. */
#include <stdint.h>
#include <string.h>

#include "core/mem.h"
#include "support/support.h"

Test(mem, size_zero_gives_a_valid_pointer)
{
    void *a = ebb__malloc(0), *b = ebb__calloc(0, 8), *c = ebb__realloc(NULL, 0);
    cr_assert(a && b && c);
    c = ebb__realloc(c, 0);
    cr_assert_not_null(c);
    cr_assert_eq(ebb_host_live_blocks(), 3);
    ebb__free(a);
    ebb__free(b);
    ebb__free(c);
    ebb__free(NULL);
    check_no_live_blocks();
}

Test(mem, calloc_gives_zeros_and_checks_the_product)
{
    char *zeros = ebb__calloc(7, 11);
    for (int i = 0; i < 77; i++) cr_assert_eq(zeros[i], 0);
    ebb__free(zeros);
    cr_assert_null(ebb__calloc(SIZE_MAX / 2, 3));
    check_message("out of memory");
    check_no_live_blocks();
}

Test(mem, what_the_system_refuses_is_said_with_its_size)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip("sanitizers stop the program at such a request");
#endif
    /* Half the address space: no allocator gives that. */
    volatile size_t half = SIZE_MAX / 2 - 4096;
    cr_assert_null(ebb__malloc(half));
    check_message("9223372036854771711");
    check_no_live_blocks();
}

Test(mem, strdup_copies)
{
    char *copy = ebb__strdup("abc");
    cr_assert_str_eq(copy, "abc");
    ebb__free(copy);
    check_no_live_blocks();
}

Test(mem, the_nth_allocation_fails_once)
{
    ebb_fault_arm(2);
    void *a = ebb__malloc(1);
    cr_assert_not_null(a);
    cr_assert_not(ebb_fault_fired());
    cr_assert_null(ebb__malloc(1));
    cr_assert(ebb_fault_fired());
    check_message("allocation 2");
    void *b = ebb__malloc(1);
    cr_assert_not_null(b);
    cr_assert_eq(ebb_fault_count(), 3);
    ebb_fault_arm(0);
    cr_assert_eq(ebb_fault_count(), 0);
    cr_assert_not(ebb_fault_fired());
    ebb__free(a);
    ebb__free(b);
    check_no_live_blocks();
}

Test(mem, every_kind_of_allocation_can_be_made_to_fail)
{
    char *kept = ebb__strdup("kept");
    ebb_fault_arm(1);
    cr_assert_null(ebb__calloc(1, 1));
    ebb_fault_arm(1);
    cr_assert_null(ebb__strdup("x"));
    ebb_fault_arm(1);
    cr_assert_null(ebb__realloc(NULL, 8));
    ebb_fault_arm(1);
    cr_assert_null(ebb__realloc(kept, 1000));
    cr_assert_str_eq(kept, "kept");
    ebb_fault_arm(1);
    cr_assert(ebb__fault());
    cr_assert_not(ebb__fault());
    ebb__free(kept);
    check_no_live_blocks();
}

Test(mem, grow_keeps_what_is_there)
{
    int *items = NULL;
    size_t cap = 0;
    for (int i = 0; i < 1000; i++) {
        check_ok(ebb__grow(&items, &cap, (size_t)i + 1, sizeof *items));
        cr_assert_geq(cap, (size_t)i + 1);
        items[i] = i;
    }
    for (int i = 0; i < 1000; i++) cr_assert_eq(items[i], i);
    cr_assert_lt(ebb_fault_count(), 20, "it grows by a factor");
    ebb__free(items);
    check_no_live_blocks();
}

Test(mem, grow_that_fails_leaves_all_as_it_was)
{
    int *items = NULL;
    size_t cap = 0;
    check_ok(ebb__grow(&items, &cap, 4, sizeof *items));
    int *before = items;
    size_t cap_before = cap;
    ebb_fault_arm(1);
    check_fails(ebb__grow(&items, &cap, cap + 1, sizeof *items), EBB_ENOMEM);
    check_fails(ebb__grow(&items, &cap, SIZE_MAX / 2, sizeof *items), EBB_ENOMEM);
    cr_assert(items == before && cap == cap_before);
    ebb__free(items);
    check_no_live_blocks();
}

Test(mem, mul_size_sees_overflow)
{
    size_t product = 1;
    cr_assert(ebb__mul_size(&product, (size_t)1 << 32, ((size_t)1 << 32) - 1));
    cr_assert_eq(product, SIZE_MAX - ((size_t)1 << 32) + 1);
    cr_assert_not(ebb__mul_size(&product, (size_t)1 << 32, (size_t)1 << 32));
    cr_assert(ebb__mul_size(&product, 0, SIZE_MAX));
    cr_assert_eq(product, 0);
}
