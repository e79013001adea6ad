import StageModel

/// HTML page that lists a directory.
struct IndexPage: Sendable {
    /// Line of the list.
    struct Line: Equatable, Sendable {
        var name: String
        var isDirectory: Bool
        var size: ByteCount
        var modified: HTTPDate
    }

    /// Decoded path of the directory below the served one: `/` or `/packs/`.
    var title: String
    var lines: [Line]

    /// The page as HTML, without external references.
    var html: String {
        let sorted = lines.sorted {
            ($1.isDirectory ? 1 : 0, $0.name) < ($0.isDirectory ? 1 : 0, $1.name)
        }
        let up = title == "/" ? "" : Self.row(href: "../", name: "..", size: "", date: "")
        let rows = sorted.map { line in
            let slash = line.isDirectory ? "/" : ""
            return Self.row(
                href: "./" + line.name.percentEncoded() + slash,
                name: line.name + slash,
                size: line.isDirectory ? "" : line.size.description,
                date: line.modified.forTable
            )
        }
        return Self.page(title: Self.escaped(title), rows: up + rows.joined())
    }

    /// Escapes text for use between tags and in quoted attributes.
    static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case "'": result += "&#39;"
            case _ where scalar.isUnsafeForDisplay: result += "\u{FFFD}"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    private static func row(href: String, name: String, size: String, date: String) -> String {
        """
        <tr><td><a href="\(escaped(href))">\(escaped(name))</a></td>\
        <td class="number">\(escaped(size))</td><td class="number">\(escaped(date))</td></tr>

        """
    }

    private static func page(title: String, rows: String) -> String {
        """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <title>\(title)</title>
        <style>
        body { font: 1rem/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2.5rem auto;
          padding: 0 1.25rem; }
        h1 { font-size: 1.25rem; font-weight: 600; overflow-wrap: anywhere; }
        table { width: 100%; border-collapse: collapse; }
        th { text-align: left; font-weight: 500; font-size: .8125rem; opacity: .7; }
        th, td { padding: .4375rem .5rem; border-bottom: 1px solid rgb(128 128 128 / .25); }
        td:first-child { overflow-wrap: anywhere; }
        tbody tr:hover { background: rgb(128 128 128 / .1); }
        .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
        a { text-decoration: none; }
        a:hover { text-decoration: underline; }
        </style>
        </head>
        <body>
        <h1>\(title)</h1>
        <table>
        <thead><tr><th>Name</th><th class="number">Size</th><th class="number">Modified (UTC)</th></tr></thead>
        <tbody>
        \(rows)</tbody>
        </table>
        </body>
        </html>

        """
    }
}
