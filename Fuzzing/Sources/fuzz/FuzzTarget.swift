import Glibc

/// A parser, and what has to hold of it for any input.
protocol FuzzTarget {
    /// Parses the bytes and checks what has to hold; traps where it does not.
    static func test(_ bytes: [UInt8])

    /// Valid inputs, which a run starts from.
    static func seeds() throws -> [[UInt8]]

    /// Words of the format, which a run puts into inputs.
    static var words: [[UInt8]] { get }
}

extension FuzzTarget {
    /// Returns the bytes of texts.
    static func utf8(_ words: String...) -> [[UInt8]] { words.map { Array($0.utf8) } }
}

/// Ends the process, which libFuzzer reports with the input, unless a property holds.
func require(_ holds: Bool, _ property: @autoclosure () -> String) {
    guard !holds else { return }
    let line = "does not hold: \(property())\n"
    _ = unsafe write(STDERR_FILENO, line, line.utf8.count)
    abort()
}

/// Returns what a parser makes of an input, or `nil` where it refuses that with an error.
func parsed<Value, Failure: Error>(_ parse: () throws(Failure) -> Value) -> Value? {
    do throws(Failure) {
        return try parse()
    } catch {
        // Each error can be shown.
        require(!"\(error)".isEmpty, "an error says something")
        return nil
    }
}
