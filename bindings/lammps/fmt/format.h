/* SPDX-License-Identifier: MIT
 * format.h: the names of the {fmt} library that LAMMPS's headers mention. Debian's liblammps-dev does not bring LAMMPS's own copy of
 * that library, and other versions lack what its headers use. The templates that mention them are never instantiated here. */
#ifndef FMT_NAMES_H
#define FMT_NAMES_H

#include <string>

namespace fmt
{
class string_view;
class format_args;
template <typename... Declared, typename Format, typename... Given> format_args make_args_checked(const Format &, Given &&...);
} // namespace fmt

#endif
