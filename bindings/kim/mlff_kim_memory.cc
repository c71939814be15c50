// SPDX-License-Identifier: MIT
// mlff_kim_memory.cc: where memory runs out the KIM API throws a C++ exception, which C code cannot catch: the program ends with a
// line that says so, and not by a signal.
#include <exception>
#include <unistd.h>

extern "C" void kim_memory_handler_set(void);

namespace
{
[[noreturn]] void end()
{
    static const char text[] = "mlff: kim: out of memory: in the KIM API\n";
    const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    _exit(written < 0 ? 2 : 1);
}
} // namespace

void kim_memory_handler_set(void)
{
    std::set_terminate(end);
}
