// SPDX-License-Identifier: MIT
// error.c: the error text of each thread, and warnings.
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#include "base.h"

static _Thread_local char last_error[1024];

const char *mlff_last_error(void)
{
    return last_error;
}

const char *mlff_last_cause(void)
{
    static _Thread_local char cause[sizeof last_error];
    memcpy(cause, last_error, sizeof cause);
    char *remedy = strrchr(cause, ';');
    if (remedy) *remedy = '\0';
    return cause;
}

mlff_status mlff_fail(mlff_status status, const char *format, ...)
{
    char text[sizeof last_error];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    base_clean(text, ' ', false); // one line, whatever a hostile file put in
    memcpy(last_error, text, sizeof text);
    return status;
}

const char *mlff_status_name(mlff_status status)
{
    switch (status) {
    case MLFF_OK: return "MLFF_OK";
    case MLFF_ERR_USAGE: return "MLFF_ERR_USAGE";
    case MLFF_ERR_IO: return "MLFF_ERR_IO";
    case MLFF_ERR_FORMAT: return "MLFF_ERR_FORMAT";
    case MLFF_ERR_VALUE: return "MLFF_ERR_VALUE";
    case MLFF_ERR_ELEMENT: return "MLFF_ERR_ELEMENT";
    case MLFF_ERR_LIMIT: return "MLFF_ERR_LIMIT";
    case MLFF_ERR_MEMORY: return "MLFF_ERR_MEMORY";
    case MLFF_ERR_DEVICE: return "MLFF_ERR_DEVICE";
    case MLFF_ERR_UNSUPPORTED: return "MLFF_ERR_UNSUPPORTED";
    case MLFF_ERR_UNSTABLE: return "MLFF_ERR_UNSTABLE";
    case MLFF_ERR_INTERRUPTED: return "MLFF_ERR_INTERRUPTED";
    case MLFF_ERR_CALLBACK: return "MLFF_ERR_CALLBACK";
    }
    return "unknown status";
}

const char *mlff_version(void)
{
    return MLFF_VERSION;
}

static pthread_mutex_t warning_lock = PTHREAD_MUTEX_INITIALIZER; // handler and context change together
static mlff_warning_handler warning_handler;
static void *warning_context;

void mlff_warning_handler_set(mlff_warning_handler handler, void *context)
{
    pthread_mutex_lock(&warning_lock);
    warning_handler = handler;
    warning_context = context;
    pthread_mutex_unlock(&warning_lock);
}

void mlff_warn(const char *format, ...)
{
    pthread_mutex_lock(&warning_lock);
    mlff_warning_handler handler = warning_handler;
    void *context = warning_context;
    pthread_mutex_unlock(&warning_lock);
    if (!handler) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    base_clean(text, ' ', false);
    handler(context, text);
}
