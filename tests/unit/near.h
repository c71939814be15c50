/* SPDX-License-Identifier: MIT */
/* near.h: numbers compared in double precision, with both shown on failure. */
#ifndef NEAR_H
#define NEAR_H

#include "support.h"

/* |value - expected| <= tolerance; a tolerance of 0 means equal. NaN fails. */
#define assert_near(value, expected, tolerance)                                                                                  \
    do {                                                                                                                         \
        double value_ = (value), expected_ = (expected), tolerance_ = (tolerance);                                               \
        if (!(fabs(value_ - expected_) <= tolerance_))                                                                           \
            fail_msg("%s is %.17g, expected %.17g within %.3g", #value, value_, expected_, tolerance_);                          \
    } while (0)

#endif
