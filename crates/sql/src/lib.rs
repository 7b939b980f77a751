//! SQL over tables of pages (paper 4).
#![forbid(unsafe_code)]
