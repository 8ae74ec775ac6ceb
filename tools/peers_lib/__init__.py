# SPDX-License-Identifier: Apache-2.0
"""The parts of tools/peers.

errors      what can go wrong
sizes       sizes, shapes of clusters and lists of ranks as words, and back
gradients   the lists of tensors whose synchronisation is measured
peers       which libraries there are: where they lie, how they are compiled against and started
variants    what can be set in each of them
install     gets those that come from PyPI
launch      one start of ranks with a deadline, and what it said
tuning      the best variant of each peer for each size
tuning_together  the same for several operations at once, in shared launches
own_table   what `lockstep tune` finds on virtual nodes, as one more variant of ours
rounds      the measured launches, in shuffled turns
figures     medians, ratios and their intervals
report      the table and the JSON
compare     a whole comparison
operations  every operation beside the best peer: choosing settings, rounds, rows that are measured once more
table_state what that has measured so far, in a file
table_rows  its rows, verdicts and tables
cg          conjugate gradients with halos: an example in plain MPI, and with Lockstep
variables   a step of many variables, beside TensorFlow's
data        rates of data sets, beside TensorFlow's and torch's
training    programs for torch and TensorFlow, which run in those environments and say results as the C program does
cli         the command line and the manual
"""
