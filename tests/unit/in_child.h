/* SPDX-License-Identifier: MIT */
/* in_child.h: what a process of its own says, for libraries that are opened once in a process. */
#ifndef IN_CHILD_H
#define IN_CHILD_H

#include <sys/wait.h>

#include "support.h"

/* Fails unless the text that `say` writes, run in a child, has `word` in it. */
SUPPORT void in_child(void (*say)(const void *context, char *text, size_t text_bytes), const void *context, const char *word)
{
    int ends[2];
    char text[600] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char said[600] = "";
        say(context, said, sizeof said);
        _exit(write(ends[1], said, strlen(said)) < 0);
    }
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    waitpid(child, NULL, 0);
    if (!strstr(text, word)) fail_msg("\"%s\" says nothing of \"%s\"", text, word);
}

#endif
