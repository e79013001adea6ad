/// A shell pattern for the paths of targets (glob(7)).
///
/// `*` matches any characters, `?` one, and `[…]` one of a set; none of them matches `/`. Letters match
/// only themselves.
struct PathPattern: Hashable, Sendable {
    private struct Component: Hashable {
        let characters: [Unicode.Scalar]
        /// Position of the first `[` that has no closing bracket, as then all later ones have none; else the end.
        let endOfSets: Int

        init(_ characters: [Unicode.Scalar]) {
            self.characters = characters
            endOfSets = PathPattern.endOfSets(in: characters)
        }
    }

    private let components: [Component]

    init(_ text: String) { components = Self.components(of: text).map(Component.init) }

    /// Returns whether the pattern matches the whole path.
    ///
    /// Takes at most time in the product of both lengths, even for hostile patterns.
    func matches(_ path: String) -> Bool {
        let names = Self.components(of: path)
        return names.count == components.count
            && zip(components, names).allSatisfy { Self.matches($1, pattern: $0) }
    }

    private static func components(of text: String) -> [[Unicode.Scalar]] {
        text.unicodeScalars.split(separator: "/", omittingEmptySubsequences: false).map(Array.init)
    }

    private static func matches(_ name: [Unicode.Scalar], pattern component: Component) -> Bool {
        let pattern = component.characters
        var (position, index) = (0, 0)
        var star: (pattern: Int, name: Int)?
        while index < name.count {
            if position < pattern.count, pattern[position] == "*" {
                star = (position, index)
                position += 1
            } else if let end = end(ofMatch: name[index], in: component, at: position) {
                position = end
                index += 1
            } else if let last = star {
                // Only the last star needs to match more: the matches of earlier stars stay valid.
                star = (last.pattern, last.name + 1)
                position = last.pattern + 1
                index = last.name + 1
            } else {
                return false
            }
        }
        return pattern[position...].allSatisfy { $0 == "*" }
    }

    /// Returns the position after the pattern element at `position` if that element matches the character.
    private static func end(
        ofMatch character: Unicode.Scalar,
        in component: Component,
        at position: Int
    ) -> Int? {
        let pattern = component.characters
        guard position < pattern.count else { return nil }
        if pattern[position] == "[", position < component.endOfSets,
            let set = set(in: pattern, at: position)
        {
            return set.matches(character) ? set.end : nil
        }
        return pattern[position] == "?" || pattern[position] == character ? position + 1 : nil
    }

    /// Returns ``Component/endOfSets`` of a pattern.
    ///
    /// A search for the missing bracket at each match would take the square of the pattern's length.
    private static func endOfSets(in pattern: [Unicode.Scalar]) -> Int {
        var position = 0
        while position < pattern.count {
            if pattern[position] == "[" {
                guard let set = Self.set(in: pattern, at: position) else { return position }
                position = set.end
            } else {
                position += 1
            }
        }
        return position
    }

    private struct CharacterSet {
        var ranges: [(first: Unicode.Scalar, last: Unicode.Scalar)] = []
        var isNegated = false
        var end = 0

        func matches(_ character: Unicode.Scalar) -> Bool {
            let isMember = ranges.contains { $0.first <= character && character <= $0.last }
            return isMember != isNegated
        }
    }

    /// Parses a character set, or returns `nil` if it has no closing bracket: then `[` is an ordinary
    /// character.
    private static func set(in pattern: [Unicode.Scalar], at position: Int) -> CharacterSet? {
        var set = CharacterSet()
        var index = position + 1
        if index < pattern.count, pattern[index] == "!" {
            set.isNegated = true
            index += 1
        }
        let start = index
        while index < pattern.count {
            // A closing bracket at the start is a member.
            if pattern[index] == "]", index > start {
                set.end = index + 1
                return set
            }
            if index + 2 < pattern.count, pattern[index + 1] == "-", pattern[index + 2] != "]" {
                set.ranges.append((pattern[index], pattern[index + 2]))
                index += 3
            } else {
                set.ranges.append((pattern[index], pattern[index]))
                index += 1
            }
        }
        return nil
    }
}
