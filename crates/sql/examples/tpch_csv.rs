//! Writes the eight tables of TPC-H as CSV files with a header, for `make_answers.py` and for trying
//! `kumiki pages load csv`: `cargo run -p kumiki-sql --example tpch_csv -- 0.1 DIR`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use tpchgen::csv::{
    CustomerCsv, LineItemCsv, NationCsv, OrderCsv, PartCsv, PartSuppCsv, RegionCsv, SupplierCsv,
};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(scale), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("tell the scale factor and the directory".into());
    };
    let scale: f64 = scale.parse()?;
    let dir = Path::new(&directory);
    std::fs::create_dir_all(dir)?;

    macro_rules! table {
        ($name:literal, $generator:ident, $csv:ident) => {{
            let mut out = BufWriter::new(File::create(dir.join(concat!($name, ".csv")))?);
            writeln!(out, "{}", $csv::header())?;
            for row in $generator::new(scale, 1, 1).iter() {
                writeln!(out, "{}", $csv::new(row))?;
            }
            out.flush()?;
        }};
    }
    table!("nation", NationGenerator, NationCsv);
    table!("region", RegionGenerator, RegionCsv);
    table!("part", PartGenerator, PartCsv);
    table!("supplier", SupplierGenerator, SupplierCsv);
    table!("partsupp", PartSuppGenerator, PartSuppCsv);
    table!("customer", CustomerGenerator, CustomerCsv);
    table!("orders", OrderGenerator, OrderCsv);
    table!("lineitem", LineItemGenerator, LineItemCsv);
    Ok(())
}
