//! The templates, compiled into the program.

use std::sync::LazyLock;

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use super::format;
use crate::http::problem::Problem;

const SOURCES: [(&str, &str); 8] = [
    ("base.html", include_str!("templates/base.html")),
    ("fields.html", include_str!("templates/fields.html")),
    ("export.html", include_str!("templates/export.html")),
    ("history.html", include_str!("templates/history.html")),
    ("activation.html", include_str!("templates/activation.html")),
    ("device.html", include_str!("templates/device.html")),
    ("sign-in.html", include_str!("templates/sign-in.html")),
    ("problem.html", include_str!("templates/problem.html")),
];

/// Escapes texts, as minijinja does in every template whose name ends with `.html`.
static TEMPLATES: LazyLock<Result<Environment<'static>, String>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    templates.set_trim_blocks(true);
    templates.set_lstrip_blocks(true);
    templates.add_filter("number", format::number);
    for (name, source) in SOURCES {
        templates.add_template(name, source).map_err(|error| format!("{error:#}"))?;
    }
    Ok(templates)
});

/// Renders a template.
///
/// # Errors
/// The template is wrong; the error is logged.
pub(super) fn render(name: &str, page: &impl Serialize) -> Result<String, Problem> {
    let rendered = TEMPLATES.as_ref().map_err(Clone::clone).and_then(|templates| {
        let rendered = templates.get_template(name).and_then(|template| template.render(page));
        rendered.map_err(|error| format!("{error:#}"))
    });
    rendered.map_err(|error| {
        tracing::error!(page = name, error, "rendering a page failed");
        Problem::page()
    })
}
