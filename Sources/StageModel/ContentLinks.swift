/// The symbolic links of one pack; detects links that leave the pack through other links.
///
/// With `b` pointing to `c/d`, `a → b/../..` leaves the pack although its own text does not. Works on the
/// paths only: nothing on disk is read, and targets need not exist. Uses memory of about the total length of
/// the paths and targets.
public struct ContentLinks: Sendable {
    /// The path and target of each link, concatenated.
    private var bytes: [UInt8] = []
    private var links: [Link] = []
    /// The first link for each hash of a path; colliding links form a chain.
    private var heads: [UInt64: Int32] = [:]

    private struct Link {
        var start: Int
        var pathLength: UInt16
        var targetLength: UInt16
        var next: Int32
    }

    /// The maximum number of links that a path may lead through, as in Linux.
    private static let maximumHops = 40
    /// The bytes of paths that ``firstFault()`` compares for each link, on average, and for all together: far more
    /// than links of real packs take, and few enough that prepared ones take no more than seconds.
    private static let comparedBytes = (each: 4096, base: 64 << 20)

    /// Creates an empty set.
    public init() {}

    /// The number of links.
    public var count: Int { links.count }

    /// Indicates whether there are no links.
    public var isEmpty: Bool { links.isEmpty }

    /// Adds a link.
    ///
    /// Duplicate paths are not detected here; the file system refuses them.
    public mutating func add(_ path: ContentPath, to target: LinkTarget) {
        let start = bytes.count
        bytes.append(contentsOf: path.text.utf8)
        let pathLength = bytes.count - start
        bytes.append(contentsOf: target.text.utf8)
        var hash = PathHash()
        for byte in path.text.utf8 { hash.add(byte) }
        links.append(
            Link(
                start: start,
                pathLength: UInt16(pathLength),
                targetLength: UInt16(bytes.count - start - pathLength),
                next: heads[hash.value] ?? -1
            )
        )
        heads[hash.value] = Int32(links.count - 1)
    }

    /// Returns the path and target of the link at `index`, in insertion order.
    public subscript(index: Int) -> (path: ArraySlice<UInt8>, target: ArraySlice<UInt8>) {
        let link = links[index]
        let middle = link.start + Int(link.pathLength)
        return (bytes[link.start..<middle], bytes[middle..<middle + Int(link.targetLength)])
    }

    /// Returns the first link that leaves the pack or is part of a loop, with the violated rule; `nil` if
    /// there is none.
    ///
    /// Takes time in proportion to the number of links, whatever they lead through: a link that exceeds it is a
    /// fault.
    public func firstFault() -> (path: String, fault: ValueError)? {
        var budget = Self.comparedBytes.base + Self.comparedBytes.each * links.count
        for index in links.indices {
            guard let fault = fault(at: index, budget: &budget) else { continue }
            let (path, target) = self[index]
            return (
                String(decoding: path, as: UTF8.self),
                ValueError(expected: fault, text: String(decoding: target, as: UTF8.self))
            )
        }
        return nil
    }

    /// Returns the rule that the link violates.
    private func fault(at index: Int, budget: inout Int) -> String? {
        let (path, target) = self[index]
        var walk = Walk(startingIn: path, following: target)
        var hops = 0
        while true {
            switch walk.step() {
            case .ended: return nil
            case .left: return "a link that stays inside the pack"
            case .entered: break
            }
            budget -= walk.path.count
            let found = link(at: walk.path, budget: &budget)
            guard budget > 0 else { return "links that lead through fewer other links" }
            guard let next = found else { continue }
            hops += 1
            if hops >= Self.maximumHops { return "a link that does not go round in circles" }
            walk.follow(self[next].target)
            budget -= walk.remaining
        }
    }

    /// Returns the link at a path, and subtracts the compared bytes from `budget`; returns `nil` also if that is used up.
    private func link(at path: ArraySlice<UInt8>, budget: inout Int) -> Int? {
        guard !heads.isEmpty else { return nil }
        var hash = PathHash()
        for byte in path { hash.add(byte) }
        var index = heads[hash.value] ?? -1
        while index >= 0, budget > 0 {
            budget -= path.count
            if self[Int(index)].path == path { return Int(index) }
            index = links[Int(index)].next
        }
        return nil
    }
}

/// Follows the components of a link's target, and of the targets of links on the way.
private struct Walk {
    enum Step {
        case entered
        case ended
        case left
    }

    /// The current path, without `.` and `..`; empty at the root.
    private(set) var path: ArraySlice<UInt8>
    /// The remaining components.
    private var rest: ArraySlice<UInt8>

    /// The number of bytes of the remaining components.
    var remaining: Int { rest.count }

    init(startingIn link: ArraySlice<UInt8>, following target: ArraySlice<UInt8>) {
        path = link
        rest = target
        leave()
    }

    /// Continues with the target of the link at the current path.
    mutating func follow(_ target: ArraySlice<UInt8>) {
        leave()
        rest = rest.isEmpty ? target : target + [UInt8(ascii: "/")] + rest
    }

    mutating func step() -> Step {
        while true {
            while rest.first == UInt8(ascii: "/") { rest.removeFirst() }
            guard !rest.isEmpty else { return .ended }
            let component = rest.prefix { $0 != UInt8(ascii: "/") }
            rest = rest[component.endIndex...]
            if component.elementsEqual(".".utf8) { continue }
            if component.elementsEqual("..".utf8) {
                if path.isEmpty { return .left }
                leave()
                continue
            }
            if !path.isEmpty { path.append(UInt8(ascii: "/")) }
            path.append(contentsOf: component)
            return .entered
        }
    }

    /// Moves to the parent directory.
    private mutating func leave() {
        path = path[..<(path.lastIndex(of: UInt8(ascii: "/")) ?? path.startIndex)]
    }
}

/// Keyed 64-bit FNV-1a, a hash that is cheap to update byte by byte.
///
/// The key is random for each process. Whether two paths collide depends only on its lowest byte, so colliding paths can be
/// prepared for one key in 256. Therefore ``ContentLinks`` limits the comparisons of links whose hashes collide, too.
private struct PathHash {
    private(set) var value: UInt64 = Self.key

    private static let key = UInt64.random(in: .min ... .max)

    mutating func add(_ byte: UInt8) {
        value = (value ^ UInt64(byte)) &* 0x100_0000_01B3
    }
}
