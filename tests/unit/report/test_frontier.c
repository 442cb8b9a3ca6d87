/* The page of a frontier: its data, its errors, and memory that runs out. */
#include <ebb/frontier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "support/training.h"

static const char gpt[] =
    "{\"seed\":3,\"model\":{\"type\":\"gpt\",\"layers\":3,\"heads\":2,\"width\":32,\"context\":32,\"vocab\":64},"
    "\"data\":{\"type\":\"synthetic\",\"items\":40,\"eval_items\":4},"
    "\"train\":{\"steps\":2,\"batch\":16,\"optimizer\":{\"type\":\"adamw\",\"lr\":0.01}}}";

enum { MAX_PLANS = 48 };

typedef struct made {
    ebb_plan *plans[MAX_PLANS];
    ebb_frontier_mark mark;
    ebb_frontier frontier;
    int n;
} made;

static void make(made *m)
{
    ebb_config *config = config_of(gpt, (const char *const[4]){ NULL });
    ebb_train_options options = train_options(2);
    check_ok(ebb_plan_frontier(m->plans, MAX_PLANS, &m->n, config, &options, true));
    cr_assert_gt(m->n, 2);
    check_ok(ebb_plan_price(&m->mark.info, config, config, &options));
    m->mark.name = "<none> & \"all\"";
    m->frontier = (ebb_frontier){ .name = "a </script> name", .plans = (const ebb_plan *const *)m->plans, .n_plans = m->n,
                                  .marks = &m->mark, .n_marks = 1, .allocated = true };
    ebb_config_free(config);
}

static void unmake(made *m)
{
    for (int i = 0; i < m->n; i++) ebb_plan_free(m->plans[i]);
}

/* What stands between the tags of the data. */
static cJSON *data_of(const char *path)
{
    size_t n;
    char *text = read_text(path, &n);
    char *from = strstr(text, "id=\"data\">"), *to = from ? strstr(from, "</script>") : NULL;
    cr_assert(to != NULL);
    *to = '\0';
    cJSON *data = cJSON_Parse(from + strlen("id=\"data\">"));
    cr_assert(data != NULL, "the data are no JSON");
    free(text);
    return data;
}

Test(frontier, the_page_has_every_plan_with_its_figures)
{
    made m = { .n = 0 };
    temp_folder folder = temp_folder_make();
    make(&m);
    if (ebb_page_check() == EBB_OK) {
        check_ok(ebb_frontier_write_html(temp_path(&folder, "f.html"), &m.frontier));
        cJSON *data = data_of(temp_path(&folder, "f.html"));
        const cJSON *f = cJSON_GetObjectItem(data, "frontier"), *points = cJSON_GetObjectItem(f, "points");
        cr_assert_str_eq(cJSON_GetObjectItem(f, "name")->valuestring, "a </script> name");
        cr_assert_str_eq(cJSON_GetObjectItem(f, "peak")->valuestring, "allocated");
        cr_assert_eq(cJSON_GetObjectItem(f, "blocks")->valuedouble, 3);
        cr_assert_eq(cJSON_GetArraySize(points), m.n);
        for (int i = 0; i < m.n; i++) {
            const cJSON *p = cJSON_GetArrayItem(points, i);
            ebb_plan_info info = ebb_plan_info_get(m.plans[i]);
            cr_assert_eq(cJSON_GetObjectItem(p, "allocated")->valuedouble, (double)info.peak_allocated_bytes);
            cr_assert_eq(cJSON_GetObjectItem(p, "reserved")->valuedouble, (double)info.peak_reserved_bytes);
            cr_assert_float_eq(cJSON_GetObjectItem(p, "overhead")->valuedouble, info.overhead, 1e-8);
            cr_assert(cJSON_IsArray(cJSON_GetObjectItem(cJSON_GetObjectItem(p, "plan"), "segments")));
        }
        const cJSON *mark = cJSON_GetArrayItem(cJSON_GetObjectItem(f, "marks"), 0);
        cr_assert_str_eq(cJSON_GetObjectItem(mark, "name")->valuestring, m.mark.name);
        cr_assert_eq(cJSON_GetObjectItem(mark, "overhead")->valuedouble, 0);
        cJSON_Delete(data);
    }
    unmake(&m);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(frontier, without_a_plan_or_a_folder_nothing_is_written)
{
    made m = { .n = 0 };
    make(&m);
    ebb_frontier none = { .name = "none" };
    check_fails(ebb_frontier_write_html("x.html", &none), EBB_EINVAL);
    if (ebb_page_check() == EBB_OK) check_fails(ebb_frontier_write_html("/nonexistent/f.html", &m.frontier), EBB_EIO);
    unmake(&m);
    check_no_live_blocks();
}

Test(frontier, failing_allocations_leave_no_page)
{
    made m = { .n = 0 };
    temp_folder folder = temp_folder_make();
    make(&m);
    int64_t live = ebb_host_live_blocks();
    for (uint64_t n = 1; ebb_page_check() == EBB_OK; n++) {
        ebb_fault_arm(n);
        ebb_status st = ebb_frontier_write_html(temp_path(&folder, "f.html"), &m.frontier);
        bool fired = ebb_fault_fired();
        ebb_fault_arm(0);
        cr_assert_eq(st, fired ? EBB_ENOMEM : EBB_OK, "allocation %llu: %s", (unsigned long long)n, ebb_message());
        cr_assert_eq(ebb_host_live_blocks(), live);
        if (!fired) break;
        FILE *page = fopen(temp_path(&folder, "f.html"), "rb");
        cr_assert(page == NULL, "allocation %llu left a page", (unsigned long long)n);
    }
    unmake(&m);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}
