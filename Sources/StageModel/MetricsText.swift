/// Samples in the text format of Prometheus (version 0.0.4), grouped by metric.
///
/// <https://prometheus.io/docs/instrumenting/exposition_formats/>
package struct MetricsText: Sendable {
    /// A metric: all samples of one name.
    package struct Metric: Sendable {
        /// Type of a metric, as its `TYPE` line has it.
        package enum Kind: String, Sendable {
            /// Only increases, and starts at 0 with each process.
            case counter
            /// Increases and decreases.
            case gauge
        }

        /// Name, with the unit as suffix; that of a counter ends in `_total`.
        package var name: String
        /// Type of the metric.
        package var kind: Kind
        /// Meaning, in one line.
        package var help: String

        /// Creates a metric.
        package init(_ name: String, kind: Kind = .gauge, help: String) {
            precondition(name.hasSuffix("_total") == (kind == .counter), "counters end in '_total'")
            self.name = name
            self.kind = kind
            self.help = help
        }
    }

    /// Media type of the text, for HTTP.
    package static let contentType = "text/plain; version=0.0.4; charset=utf-8"

    private let metrics: [Metric]
    private var samples: [String: [String]] = [:]

    /// Creates a text without samples of the given metrics, which come in this order.
    package init(_ metrics: [Metric]) { self.metrics = metrics }

    /// Adds a sample of one of the metrics.
    package mutating func add(_ name: String, labels: [String: String] = [:], value: Double) {
        precondition(metrics.contains { $0.name == name }, "a metric has a meaning")
        let names = labels.sorted { $0.key < $1.key }
            .map { "\($0.key)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",")
        let number = Int64(exactly: value).map(String.init) ?? "\(value)"
        samples[name, default: []]
            .append("\(name)\(names.isEmpty ? "" : "{\(names)}") \(number)")
    }

    /// The text, with a line break at the end; metrics without samples are left out.
    package var text: String {
        metrics.compactMap { metric in
            samples[metric.name].map { lines in
                let head = [
                    "# HELP \(metric.name) \(metric.help)",
                    "# TYPE \(metric.name) \(metric.kind.rawValue)",
                ]
                return (head + lines).map { $0 + "\n" }.joined()
            }
        }.joined()
    }

    /// Escapes scalars and not characters, which may hide them: a quotation mark before a combining one, `\r\n`.
    private static func escaped(_ value: String) -> String {
        var text = ""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\\": text += #"\\"#
            case "\"": text += #"\""#
            case "\n": text += #"\n"#
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text
    }
}
