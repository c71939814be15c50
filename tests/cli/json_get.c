// SPDX-License-Identifier: MIT
// json_get.c: for the tests of the command: prints a value of a JSON file, `json_get FILE frames.0.energy_ev`. An array or
// object prints its length. Exit 1 if the file is not JSON as a whole or has no such value.
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_all(const char *path)
{
    size_t capacity = 1 << 16, length = 0;
    char *text = malloc(capacity);
    FILE *file = fopen(path, "rb");
    while (file && text) {
        size_t got = fread(text + length, 1, capacity - length - 1, file);
        length += got;
        if (got == 0) break;
        if (capacity - length < 1024) text = realloc(text, capacity *= 2);
    }
    if (file) fclose(file);
    if (text) text[length] = 0;
    return file ? text : NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    char *text = read_all(argv[1]);
    cJSON *root = text ? cJSON_ParseWithOpts(text, NULL, 1) : NULL;
    const cJSON *value = root;
    for (char *key = argc > 2 ? strtok(argv[2], ".") : NULL; key && value; key = strtok(NULL, "."))
        value = cJSON_IsArray(value) ? cJSON_GetArrayItem(value, atoi(key)) : cJSON_GetObjectItemCaseSensitive(value, key);
    if (!value) {
        fprintf(stderr, "%s: %s\n", argv[1], root ? "no such value" : "not JSON");
    } else if (cJSON_IsNumber(value)) {
        printf("%.17g\n", value->valuedouble);
    } else if (cJSON_IsString(value)) {
        puts(value->valuestring);
    } else if (cJSON_IsArray(value) || cJSON_IsObject(value)) {
        printf("%d\n", cJSON_GetArraySize(value));
    } else {
        puts(cJSON_IsNull(value) ? "null" : cJSON_IsTrue(value) ? "true" : "false");
    }
    int exit_status = value ? 0 : 1;
    cJSON_Delete(root);
    free(text);
    return exit_status;
}
