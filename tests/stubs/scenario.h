/* What a stub is told to be: a file of `key value` lines, named by LOADPATH_STUB. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int told(const char *key, char *value, size_t size) {
    const char *path = getenv("LOADPATH_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        size_t length = strlen(key);
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static long number(const char *key, long otherwise) {
    char value[512];
    return told(key, value, sizeof value) ? strtol(value, NULL, 0) : otherwise;
}

/* A figure of one GPU: `key.N`, else `key`. */
static inline long of_gpu(const char *key, int gpu, long otherwise) {
    char own[80];
    snprintf(own, sizeof own, "%s.%d", key, gpu);
    return number(own, number(key, otherwise));
}

static void text(const char *key, const char *otherwise, char *out, unsigned size) {
    char value[512];
    snprintf(out, size, "%s", told(key, value, sizeof value) ? value : otherwise);
}

/* `hang <call>` and `crash <call>`: that call never returns, or takes the process with it. */
static void misbehave(const char *call) {
    char value[512];
    if (told("hang", value, sizeof value) && strcmp(value, call) == 0)
        for (;;) pause();
    if (told("crash", value, sizeof value) && strcmp(value, call) == 0) raise(SIGSEGV);
}
