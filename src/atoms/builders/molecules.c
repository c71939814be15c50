// SPDX-License-Identifier: MIT
// molecules.c: a handful of molecules at equilibrium, for tests, demonstrations and measurements.
//
// Built from standard bond lengths, angles and dihedrals (aspirin: carboxyl hydrogen beside its carbonyl oxygen, acetyl
// group out of the ring's plane) and relaxed with GFN2-xTB (xtb 6, --opt vtight), then turned to their principal axes
// around the center of mass and rounded to 0.0001 Å.
#include "atoms/atoms.h"

static const struct atoms_site h2o_sites[] = {
    {8, {0.0000, 0.0637, 0.0000}},
    {1, {-0.7722, -0.5053, 0.0000}},
    {1, {0.7722, -0.5053, 0.0000}},
};

static const struct atoms_site methane_sites[] = {
    {6, {0.0000, 0.0000, 0.0000}},   {1, {0.6248, 0.6248, 0.6248}},   {1, {-0.6248, -0.6248, 0.6248}},
    {1, {0.6248, -0.6248, -0.6248}}, {1, {-0.6248, 0.6248, -0.6248}},
};

static const struct atoms_site ethanol_sites[] = {
    {6, {1.2919, -0.0050, 0.0000}},  {6, {-0.1213, 0.5565, 0.0000}},  {8, {-1.0313, -0.5240, 0.0000}},
    {1, {2.0159, 0.8050, 0.0000}},   {1, {1.4415, -0.6221, -0.8815}}, {1, {1.4415, -0.6221, 0.8815}},
    {1, {-0.2739, 1.1835, -0.8910}}, {1, {-0.2739, 1.1835, 0.8910}},  {1, {-1.9308, -0.1826, 0.0000}},
};

static const struct atoms_site benzene_sites[] = {
    {6, {1.3846, 0.0000, 0.0000}},  {6, {0.6923, 1.1991, 0.0000}},   {6, {-0.6923, 1.1991, 0.0000}},
    {6, {-1.3846, 0.0000, 0.0000}}, {6, {-0.6923, -1.1991, 0.0000}}, {6, {0.6923, -1.1991, 0.0000}},
    {1, {2.4651, 0.0000, 0.0000}},  {1, {1.2325, 2.1348, 0.0000}},   {1, {-1.2325, 2.1348, 0.0000}},
    {1, {-2.4651, 0.0000, 0.0000}}, {1, {-1.2325, -2.1348, 0.0000}}, {1, {1.2325, -2.1348, 0.0000}},
};

static const struct atoms_site aspirin_sites[] = {
    {6, {0.9660, -0.6081, 0.1255}},  {6, {0.1329, 0.5106, 0.2445}},   {6, {0.6806, 1.7860, 0.2364}},
    {6, {2.0476, 1.9549, 0.1075}},   {6, {2.8830, 0.8541, 0.0039}},   {6, {2.3429, -0.4158, 0.0188}},
    {6, {0.4782, -2.0078, 0.0987}},  {8, {1.1963, -2.9666, 0.2392}},  {8, {-0.8353, -2.1382, -0.1255}},
    {8, {-1.2192, 0.3187, 0.4428}},  {6, {-2.1294, 1.0002, -0.2813}}, {8, {-1.8591, 1.7918, -1.1399}},
    {6, {-3.5145, 0.6023, 0.1465}},  {1, {0.0302, 2.6416, 0.3273}},   {1, {2.4595, 2.9526, 0.0957}},
    {1, {3.9497, 0.9876, -0.0882}},  {1, {2.9681, -1.2922, -0.0594}}, {1, {-1.0675, -3.0804, -0.1402}},
    {1, {-4.2465, 1.0635, -0.5088}}, {1, {-3.6805, 0.9256, 1.1717}},  {1, {-3.6026, -0.4803, 0.1136}},
};

static const struct atoms_site caffeine_sites[] = {
    {7, {-1.1581, -1.1660, 0.0000}}, {6, {-1.8461, 0.0423, 0.0000}},   {7, {-1.0840, 1.1914, 0.0000}},
    {6, {0.2726, 1.1022, 0.0000}},   {6, {0.9278, -0.1203, 0.0000}},   {6, {0.2248, -1.3671, 0.0000}},
    {7, {2.2688, 0.1856, 0.0000}},   {6, {2.3392, 1.5281, 0.0000}},    {7, {1.1630, 2.1186, 0.0000}},
    {8, {-3.0576, 0.0869, 0.0000}},  {8, {0.7032, -2.4846, 0.0000}},   {6, {-1.9577, -2.3809, 0.0000}},
    {6, {-1.7232, 2.4892, 0.0000}},  {6, {3.3420, -0.7661, 0.0000}},   {1, {3.2675, 2.0639, 0.0000}},
    {1, {-3.0070, -2.0994, 0.0000}}, {1, {-1.7206, -2.9714, -0.8848}}, {1, {-1.7206, -2.9714, 0.8848}},
    {1, {-2.7995, 2.3310, 0.0000}},  {1, {-1.4211, 3.0464, 0.8864}},   {1, {-1.4211, 3.0464, -0.8864}},
    {1, {4.2934, -0.2376, 0.0000}},  {1, {3.2735, -1.4048, 0.8818}},   {1, {3.2735, -1.4048, -0.8818}},
};

static const atoms_molecule molecules[] = {
    {"h2o", sizeof h2o_sites / sizeof h2o_sites[0], h2o_sites},
    {"methane", sizeof methane_sites / sizeof methane_sites[0], methane_sites},
    {"ethanol", sizeof ethanol_sites / sizeof ethanol_sites[0], ethanol_sites},
    {"benzene", sizeof benzene_sites / sizeof benzene_sites[0], benzene_sites},
    {"aspirin", sizeof aspirin_sites / sizeof aspirin_sites[0], aspirin_sites},
    {"caffeine", sizeof caffeine_sites / sizeof caffeine_sites[0], caffeine_sites},
};

const atoms_molecule *atoms_molecules(int *n_out)
{
    *n_out = (int)(sizeof molecules / sizeof molecules[0]);
    return molecules;
}
