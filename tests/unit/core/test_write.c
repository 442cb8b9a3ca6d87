/* Files that appear complete or not at all. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/file.h"
#include "support/support.h"

static int entries(const char *path)
{
    int n = 0;
    DIR *folder = opendir(path);
    cr_assert_not_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

static ebb_status write_all(const char *path, const char *text)
{
    ebb__writer *writer = NULL;
    ebb_status st = ebb__write_begin(&writer, path);
    if (st != EBB_OK) return st;
    st = ebb__write(writer, text, strlen(text));
    if (st == EBB_OK) return ebb__write_commit(&writer);
    ebb__write_abort(&writer);
    return st;
}

static void check_content(const char *path, const char *expected)
{
    char *text = read_text(path, NULL);
    cr_assert_str_eq(text, expected);
    free(text);
}

Test(write, a_file_appears_when_it_is_committed)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a");
    ebb__writer *writer = NULL;
    check_ok(ebb__write_begin(&writer, path));
    check_ok(ebb__write(writer, "one ", 4));
    check_ok(ebb__write(writer, NULL, 0));
    check_ok(ebb__write(writer, "two", 3));
    cr_assert_neq(access(path, F_OK), 0);
    check_ok(ebb__write_commit(&writer));
    cr_assert_null(writer);
    check_content(path, "one two");
    cr_assert_eq(entries(folder.path), 1, "no temporary is left");
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(write, an_aborted_file_leaves_the_old_one_and_nothing_else)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a");
    ebb__writer *writer = NULL;
    write_text(path, "old");
    check_ok(ebb__write_begin(&writer, path));
    check_ok(ebb__write(writer, "new", 3));
    cr_assert_eq(entries(folder.path), 2);
    ebb__write_abort(&writer);
    cr_assert_null(writer);
    ebb__write_abort(&writer);
    check_content(path, "old");
    cr_assert_eq(entries(folder.path), 1);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(write, pieces_of_every_size_arrive_in_order)
{
    enum { TOTAL = 400000 };
    static char sent[TOTAL];
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a");
    ebb__writer *writer = NULL;
    for (int i = 0; i < TOTAL; i++) sent[i] = (char)(i * 7 + i / 256);
    check_ok(ebb__write_begin(&writer, path));
    size_t done = 0;
    for (size_t piece = 1; done < TOTAL; piece = piece * 3 % 100003) {
        size_t bytes = piece < TOTAL - done ? piece : TOTAL - done;
        check_ok(ebb__write(writer, sent + done, bytes));
        done += bytes;
    }
    check_ok(ebb__write_commit(&writer));
    size_t bytes;
    char *got = read_text(path, &bytes);
    cr_assert_eq(bytes, TOTAL);
    cr_assert_arr_eq(got, sent, TOTAL);
    free(got);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(write, a_replaced_file_keeps_its_mode_and_a_link_stays_a_link)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a"), *link = temp_path(&folder, "link");
    struct stat info;
    write_text(path, "old");
    cr_assert_eq(chmod(path, 0640), 0);
    cr_assert_eq(symlink("a", link), 0);
    check_ok(write_all(link, "new"));
    check_content(path, "new");
    cr_assert(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    cr_assert(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640);
    temp_folder_remove(&folder);
}

Test(write, what_cannot_be_replaced_is_refused_and_stays)
{
    temp_folder folder = temp_folder_make();
    const char *loose = temp_path(&folder, "loose");
    check_fails(write_all(folder.path, "x"), EBB_EIO);
    check_message("is a folder");
    cr_assert_eq(symlink("nowhere", loose), 0);
    check_fails(write_all(loose, "x"), EBB_EIO);
    check_message("is a link to nothing");
    check_fails(write_all("", "x"), EBB_EIO);
    check_fails(write_all(temp_path(&folder, "none/a"), "x"), EBB_EIO);
    check_message("none/a: No such file");
    cr_assert_eq(entries(folder.path), 1);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(write, a_pipe_gets_the_bytes_and_stays)
{
    temp_folder folder = temp_folder_make();
    const char *pipe = temp_path(&folder, "pipe"), *link = temp_path(&folder, "link");
    struct stat info;
    char got[16] = "";
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    cr_assert_eq(symlink("pipe", link), 0);
    int end = open(pipe, O_RDONLY | O_NONBLOCK);
    check_ok(write_all(pipe, "one "));
    check_ok(write_all(link, "two"));
    cr_assert_eq(read(end, got, sizeof got - 1), 7);
    cr_assert_str_eq(got, "one two");
    close(end);
    cr_assert(lstat(pipe, &info) == 0 && S_ISFIFO(info.st_mode) && (info.st_mode & 0777) == 0600);
    cr_assert_eq(entries(folder.path), 2, "no temporary is left");
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* A device of our own that is always full, where we may make one. */
Test(write, a_device_that_fails_is_told_and_stays)
{
    temp_folder folder = temp_folder_make();
    const char *full = temp_path(&folder, "full");
    struct stat info;
    int made = mknod(full, S_IFCHR | 0600, makedev(1, 7)), usable = made == 0 ? open(full, O_WRONLY) : -1;
    if (usable >= 0) {
        close(usable);
        check_fails(write_all(full, "x"), EBB_EIO);
        check_message("full: No space left on device");
        cr_assert(lstat(full, &info) == 0 && S_ISCHR(info.st_mode));
    }
    temp_folder_remove(&folder);
    check_no_live_blocks();
    if (usable < 0) cr_skip_test("no right to make a device");
}

Test(write, a_standard_stream_goes_on_where_it_was)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a");
    int before = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_CREAT, 0644);
    dup2(fd, STDERR_FILENO);
    ssize_t first = write(STDERR_FILENO, "one ", 4);
    ebb_status st = write_all("/dev/stderr", "two");
    ssize_t last = write(STDERR_FILENO, " three", 6);
    dup2(before, STDERR_FILENO);
    check_ok(st);
    cr_assert(first == 4 && last == 6);
    check_content(path, "one two three");
    close(fd);
    close(before);
    temp_folder_remove(&folder);
}

/* The folder goes away between begin and commit: the rename fails, and so does commit. */
Test(write, a_commit_that_fails_frees_the_writer)
{
    temp_folder folder = temp_folder_make();
    ebb__writer *writer = NULL;
    check_ok(ebb__write_begin(&writer, temp_path(&folder, "a")));
    check_ok(ebb__write(writer, "x", 1));
    temp_folder_remove(&folder);
    check_fails(ebb__write_commit(&writer), EBB_EIO);
    check_message("/a: No such file");
    cr_assert_null(writer);
    check_no_live_blocks();
}

Test(write, every_allocation_may_fail)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a");
    write_text(path, "old");
    for (uint64_t n = 1;; n++) {
        ebb_fault_arm(n);
        ebb_status st = write_all(path, "new");
        check_no_live_blocks();
        cr_assert_eq(entries(folder.path), 1);
        if (!ebb_fault_fired()) {
            cr_assert_eq(st, EBB_OK);
            cr_assert_eq(n, 4, "three allocations: the writer and two names");
            break;
        }
        cr_assert_eq(st, EBB_ENOMEM);
        check_content(path, "old");
    }
    check_content(path, "new");
    temp_folder_remove(&folder);
}
