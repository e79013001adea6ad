package import StageModel

/// A path pattern: `*` and `?` within a component, `[a-z]` and `[!a-z]` for one character, and `**` for any
/// number of components.
///
/// A `\` escapes the next character. Comparison is case-sensitive, and a leading dot has no special meaning.
/// A final `**` matches everything below a directory, but not the directory itself.
package struct GlobPattern: Hashable, Sendable {
    /// The pattern as written.
    package let text: String
    /// Indicates whether the pattern has no wildcard and so matches a single path.
    package var isLiteral: Bool {
        components.allSatisfy { component in
            guard case .name(let elements) = component else { return false }
            return elements.allSatisfy { if case .character = $0 { true } else { false } }
        }
    }
    /// Indicates whether it matches absolute paths.
    let isAbsolute: Bool
    private let components: [Component]

    private enum Component: Hashable, Sendable {
        case anyDirectories
        case name([Element])
    }

    private enum Element: Hashable, Sendable {
        case any
        case one
        case character(Unicode.Scalar)
        case set([ClosedRange<Unicode.Scalar>], isInverted: Bool)
    }

    /// Parses a pattern; ignores empty and `.` components.
    ///
    /// - Throws: ``ValueError`` for a text without components, and for a `[` without `]`.
    package init(_ text: String) throws(ValueError) {
        self.text = text
        isAbsolute = text.utf8.first == UInt8(ascii: "/")
        var components: [Component] = []
        for component in text.pathComponents where component != "." {
            components.append(
                component == "**" ? .anyDirectories : .name(try Self.elements(component, of: text))
            )
        }
        guard !components.isEmpty else { throw ValueError(expected: "a pattern", text: text) }
        self.components = components
    }

    /// Checks whether an exclusion with this pattern excludes a path: whether it matches the path or a directory above.
    ///
    /// A relative pattern that begins with `**` matches absolute paths, too.
    ///
    /// - Parameters:
    ///   - path: The path.
    ///   - outside: The number of components of the path that name directories outside of the recipe's root, which only
    ///     a pattern that names them excludes, and not `**/NAME`.
    /// - Returns: Whether the path is excluded.
    func excludes(_ path: String, below outside: Int = 0) -> Bool {
        let isAbsolutePath = path.utf8.first == UInt8(ascii: "/")
        let isAnywhere = !isAbsolute && components.first == .anyDirectories
        guard isAbsolute == isAbsolutePath || isAnywhere else { return false }
        var state = start
        var count = 0
        for name in path.pathComponents where name != "." {
            state = advance(state, over: name)
            count += 1
            if state.isEmpty { return false }
            if accepts(state), !isAnywhere || count > outside { return true }
        }
        return false
    }
}

extension GlobPattern {
    /// The components of the pattern that may match the next component of a path.
    ///
    /// Empty if no path below can match.
    typealias State = [Int]

    /// The state before the first component of a path.
    var start: State { closure([0]) }

    /// Returns the state after one more component of the path.
    func advance(_ state: State, over name: Substring) -> State {
        let scalars = Array(name.unicodeScalars)
        var next: State = []
        for position in state where position < components.count {
            switch components[position] {
            case .anyDirectories:
                next.append(position)
                // A final `**` matches at least one component.
                if position == components.count - 1 { next.append(position + 1) }
            case .name(let elements):
                if Self.matches(elements[...], name: scalars[...]) { next.append(position + 1) }
            }
        }
        return closure(next)
    }

    /// Returns whether a path that leads to this state matches.
    func accepts(_ state: State) -> Bool { state.contains(components.count) }

    /// Adds the components after a `**` that matches zero components.
    private func closure(_ state: State) -> State {
        var all = state
        var index = 0
        while index < all.count {
            let position = all[index]
            if position < components.count - 1, components[position] == .anyDirectories,
                !all.contains(position + 1)
            {
                all.append(position + 1)
            }
            index += 1
        }
        return all
    }

    private static func matches(
        _ elements: ArraySlice<Element>,
        name: ArraySlice<Unicode.Scalar>
    ) -> Bool {
        var elements = elements
        var name = name
        // The state to return to when the last '*' must match one more character.
        var retry: (elements: ArraySlice<Element>, name: ArraySlice<Unicode.Scalar>)?
        while true {
            if elements.first == .any {
                elements = elements.dropFirst()
                retry = (elements, name)
            } else if let element = elements.first, let scalar = name.first,
                matches(element, scalar: scalar)
            {
                elements = elements.dropFirst()
                name = name.dropFirst()
            } else if elements.isEmpty, name.isEmpty {
                return true
            } else if let last = retry, !last.name.isEmpty {
                retry = (last.elements, last.name.dropFirst())
                (elements, name) = (last.elements, last.name.dropFirst())
            } else {
                return false
            }
        }
    }

    private static func matches(_ element: Element, scalar: Unicode.Scalar) -> Bool {
        switch element {
        case .any: false
        case .one: true
        case .character(let character): character == scalar
        case .set(let ranges, let isInverted):
            ranges.contains { $0.contains(scalar) } != isInverted
        }
    }

    private static func elements(
        _ component: Substring,
        of text: String
    ) throws(ValueError) -> [Element] {
        var elements: [Element] = []
        var rest = component.unicodeScalars[...]
        while let scalar = rest.popFirst() {
            switch scalar {
            case "*": elements.append(.any)
            case "?": elements.append(.one)
            case "\\": elements.append(.character(rest.popFirst() ?? scalar))
            case "[":
                guard let set = Self.set(&rest) else {
                    throw ValueError(expected: "a pattern with a ']' for each '['", text: text)
                }
                elements.append(set)
            default: elements.append(.character(scalar))
            }
        }
        return elements
    }

    /// Parses a character set after its `[`; a `]` may be its first character.
    private static func set(_ rest: inout Substring.UnicodeScalarView) -> Element? {
        var ranges: [ClosedRange<Unicode.Scalar>] = []
        let isInverted = rest.first == "!" || rest.first == "^"
        if isInverted { rest.removeFirst() }
        while let scalar = rest.popFirst() {
            if scalar == "]", !ranges.isEmpty { return .set(ranges, isInverted: isInverted) }
            let second = rest.dropFirst().first
            if rest.first == "-", let second, second != "]", scalar <= second {
                rest = rest.dropFirst(2)
                ranges.append(scalar...second)
            } else {
                ranges.append(scalar...scalar)
            }
        }
        return nil
    }
}
