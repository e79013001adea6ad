import Glibc

/// A parser, and the properties that hold for any input.
protocol FuzzTarget {
    /// Parses the bytes and checks the properties; traps if one does not hold.
    static func test(_ bytes: [UInt8])

    /// Valid inputs, from which a run starts.
    static func seeds() throws -> [[UInt8]]

    /// Words of the format, which libFuzzer inserts into inputs.
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

/// Returns the result of a parser for an input, or `nil` if it throws an error.
func parsed<Value, Failure: Error>(_ parse: () throws(Failure) -> Value) -> Value? {
    do throws(Failure) {
        return try parse()
    } catch {
        // Each error has a description that does not trap.
        require(!"\(error)".isEmpty, "an error says something")
        return nil
    }
}
