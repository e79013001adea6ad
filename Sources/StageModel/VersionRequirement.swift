/// A set of application versions, written as comparisons that must all hold: `>=2.3 <3`.
///
/// Versions are compared number by number; missing numbers count as 0.
public struct VersionRequirement: Hashable, Sendable {
    /// The requirement as written.
    public let text: String
    private let comparisons: [Comparison]

    private struct Comparison: Hashable {
        var operation: String
        var version: [Int]
    }

    /// Parses a requirement.
    ///
    /// - Throws: ``ValueError`` unless every word is one of `<`, `<=`, `=`, `>=` and `>`, directly followed
    ///   by a version.
    public init(_ text: String) throws(ValueError) {
        var comparisons: [Comparison] = []
        for word in text.split(separator: " ") {
            let operation = String(word.prefix { "<>=".contains($0) })
            guard ["<", "<=", "=", ">=", ">"].contains(operation),
                let version = Self.numbers(word.dropFirst(operation.count))
            else {
                throw ValueError(expected: "comparisons such as '>=2.3 <3'", text: text)
            }
            comparisons.append(Comparison(operation: operation, version: version))
        }
        guard !comparisons.isEmpty else {
            throw ValueError(expected: "comparisons such as '>=2.3 <3'", text: text)
        }
        self.text = text
        self.comparisons = comparisons
    }

    /// Returns whether `version`, such as `2.4.1`, meets the requirement.
    ///
    /// A version that does not consist of numbers separated by dots never meets it.
    public func isMet(by version: String) -> Bool {
        guard let version = Self.numbers(version[...]) else { return false }
        return comparisons.allSatisfy { comparison in
            let difference = Self.compare(version, with: comparison.version)
            return switch comparison.operation {
            case "<": difference < 0
            case "<=": difference <= 0
            case ">=": difference >= 0
            case ">": difference > 0
            default: difference == 0
            }
        }
    }

    private static func numbers(_ text: Substring) -> [Int]? {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        let numbers = parts.compactMap { part in
            part.allSatisfy { $0.isASCII && $0.isNumber } ? Int(part) : nil
        }
        return numbers.count == parts.count ? numbers : nil
    }

    private static func compare(_ left: [Int], with right: [Int]) -> Int {
        for index in 0..<max(left.count, right.count) {
            let a = index < left.count ? left[index] : 0
            let b = index < right.count ? right[index] : 0
            if a != b { return a < b ? -1 : 1 }
        }
        return 0
    }
}
