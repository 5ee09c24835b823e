//! The two text formats of metrics, and which of them a reader asks for.
//!
//! The registry writes OpenMetrics. Prometheus' older text format, version 0.0.4, is made from it line by line: there,
//! a counter's metadata has the sample's name, with `_total`, and there are no types `info` and `unknown`, no units,
//! and no end mark. A reader of the older format fails at a type that it does not know, or takes counters for nothing
//! in particular.
//!
//! As with Prometheus' own libraries, OpenMetrics has to be asked for by name; who accepts anything gets what everybody
//! can read. Karpenter's end-to-end tests do, through the API server's proxy.

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
}

impl Format {
    /// What a request with that header `Accept` is to be answered in: of the two the one with the greater weight, of
    /// equal ones OpenMetrics, and without any of them the older.
    pub fn accepted(accept: &str) -> Self {
        let weight_of = |wanted: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
                name.trim().eq_ignore_ascii_case(wanted).then(|| weight(parameters))
            });
            ranges.max().unwrap_or(0)
        };
        let open = weight_of("application/openmetrics-text");
        if open > 0 && open >= weight_of("text/plain") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The content type of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The weight among a media range's parameters, in thousandths. One that is no weight is none.
fn weight(parameters: &str) -> u32 {
    let given = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(given) = given else { return 1000 };
    let (whole, decimals) = given.split_once('.').unwrap_or((given, ""));
    let decimals: String = decimals.chars().chain(std::iter::repeat('0')).take(3).collect();
    match (whole.parse::<u32>(), decimals.parse::<u32>()) {
        (Ok(whole), Ok(decimals)) => whole.saturating_mul(1000).saturating_add(decimals).min(1000),
        (Err(_), _) | (_, Err(_)) => 0,
    }
}

/// Prometheus' text format, from OpenMetrics as our registry writes it: each family begins with its help, then its
/// type.
pub(super) fn prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                push_line(&mut text, &["# HELP ", name, suffix, " ", help]);
            }
            push_line(&mut text, &["# TYPE ", name, suffix, " ", kind]);
        } else if !line.starts_with('#') {
            push_line(&mut text, &[line]);
        }
    }
    text
}

fn push_line(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_gets_the_format_that_it_asks_for() {
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
                            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("application/json, */*", Format::Prometheus),
            ("text/plain; version=0.0.4", Format::Prometheus),
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", Format::Prometheus),
            ("application/openmetrics-text; version=1.0.0", Format::OpenMetrics),
            (prometheus_3, Format::OpenMetrics),
            ("application/openmetrics-text;q=0.5,text/plain;q=0.75", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("APPLICATION/OpenMetrics-Text ; Q=0.9, text/plain;q=x", Format::OpenMetrics),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn the_older_format_has_its_own_names_and_types_and_the_same_samples() {
        let open = "# HELP a_seconds Of a.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{x=\"# TYPE\"} 1\n\
                    # HELP b Of b.\n# TYPE b info\nb_info{version=\"1\"} 1\n# HELP c Of c.\n# TYPE c histogram\n\
                    c_bucket{le=\"+Inf\"} 2\nc_sum 3.0\nc_count 2\n# HELP d Of d.\n# TYPE d unknown\nd 4\n# EOF\n";
        let older = "# HELP a_seconds_total Of a.\n# TYPE a_seconds_total counter\na_seconds_total{x=\"# TYPE\"} 1\n\
                     # HELP b_info Of b.\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n# HELP c Of c.\n# TYPE c histogram\n\
                     c_bucket{le=\"+Inf\"} 2\nc_sum 3.0\nc_count 2\n# HELP d Of d.\n# TYPE d untyped\nd 4\n";
        assert_eq!(prometheus(open), older);
    }
}
