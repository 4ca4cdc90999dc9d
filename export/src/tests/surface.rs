//! The names that scripts of users depend on: routes and columns. `surface.txt` lists them, so that a change of one
//! shows in review; `ADTRAIL_WRITE_SURFACE=1` rewrites the file. Clients rely on the order of columns, too. Commands,
//! settings and metrics: `tests/commands/surface.rs`.

use std::fs;

use crate::appsflyer::column::additional_names;
use crate::appsflyer::field_list::fields;
use crate::format::columns::native::Column;
use crate::http::router::{OPEN_PAGES, OPEN_ROUTES, PAGES, ROUTES};

#[test]
fn routes_and_columns_are_those_of_surface_txt() {
    let section = |title: &str, names: Vec<String>| format!("# {title}\n{}\n", names.join("\n"));
    let routes = [ROUTES, PAGES, OPEN_ROUTES, OPEN_PAGES].into_iter().flatten();
    let appsflyer = fields(additional_names().into_iter().map(Into::into));
    let text = [
        section("routes", routes.map(|(path, _)| (*path).to_owned()).collect()),
        section("columns", Column::known().map(str::to_owned).collect()),
        section("AppsFlyer columns", appsflyer.iter().map(|field| field.name().into()).collect()),
    ];
    let (text, path) = (text.join("\n"), "src/tests/surface.txt");
    if std::env::var_os("ADTRAIL_WRITE_SURFACE").is_some() {
        fs::write(path, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(path).unwrap());
}
