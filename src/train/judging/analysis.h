/* SPDX-License-Identifier: MIT */
/* analysis.h: observables of trajectories that two force fields are compared by, and what they are compared with. */
#ifndef ANALYSIS_H
#define ANALYSIS_H

#include "base/base.h"
#include "mlff_atoms.h"

/* Histogram of interatomic distances, minimum image along periodic axes: counts added into bins of `width` Å from 0. */
typedef struct distance_histogram {
    int n_bins;
    double width;
    double *count; /* [n_bins] */
    double total;
} distance_histogram;
mlff_status distance_histogram_create(int n_bins, double width, distance_histogram *histogram);
void distance_histogram_add(distance_histogram *histogram, const mlff_system *system);
void distance_histogram_free(distance_histogram *histogram);

/* Half the sum of |a/Σa - b/Σb|: 0 for equal, 1 for disjoint distributions. */
double analysis_distance(const double *a, const double *b, int n);

/* The slope of n values against their index, half of its 99 % interval (NaN of fewer than 20 values), and whether the interval lies on one side of
 * ± limit. */
typedef struct analysis_slope {
    double slope, half;
    bool decided;
} analysis_slope;
analysis_slope analysis_drift(const double *values, int64_t n, double limit);

/* Clopper and Pearson's interval of a share, of which `found` of n (1 or more) were seen: below the share with probability 1 - error at
 * least, and above it with as much. */
typedef struct analysis_interval {
    double low, high;
} analysis_interval;
analysis_interval analysis_share(int found, int n, double error);

/* Pairs of atoms closer than 1.25 times the sum of their covalent radii: the bonds of a molecule at rest. Where one of the two is a metal
 * they are contacts, which have no length to keep: atoms of a hot metal vibrate by 1 Å against each other, diffuse and melt. */
typedef struct bond_list {
    int (*atoms)[2];
    double *length; /* Å, of the structure the list was made of */
    int n;
    size_t atom_capacity, length_capacity;
    unsigned char *in_contact; /* [n_atoms] */
    int n_in_contact;
} bond_list;
mlff_status bond_list_create(const mlff_system *system, bond_list *bonds);
void bond_list_free(bond_list *bonds);
/* The bond whose length differs most from its length at rest: its index, and by how much (Å); -1 without bonds. */
int bond_list_worst(const bond_list *bonds, const mlff_system *system, double *stretch_out);

/* Of the atoms that were in contact, distances in units of the sum of covalent radii. */
typedef struct contact_range {
    double closest; /* of a pair with a metal; infinite without contacts */
    int pair[2];
    double farthest; /* of an atom from its nearest one; 0 without contacts */
    int alone;       /* that atom */
} contact_range;
contact_range bond_list_contacts(const bond_list *bonds, const mlff_system *system);

#endif
