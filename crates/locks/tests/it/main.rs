//! Tests of locks: the simulation.

mod simulation;
