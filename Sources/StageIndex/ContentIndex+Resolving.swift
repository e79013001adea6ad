package import StageModel

extension ContentIndex {
    /// The result of resolving a path in the tree that the index describes.
    package struct Resolution: Equatable, Sendable {
        /// The file or directory that a path resolves to.
        package enum Item: Equatable, Sendable {
            /// The file at a position of the entries.
            case file(Int)
            /// A directory.
            case directory
        }

        /// The file or directory that the path resolves to.
        package var item: Item
        /// The positions of the links that the path leads through, in order.
        package var links: [Int]

        /// Creates a resolution from its parts.
        package init(item: Item, links: [Int] = []) {
            self.item = item
            self.links = links
        }
    }

    /// The maximum number of links that a path may lead through, as in Linux.
    private static let maximumLinks = 40

    /// Resolves a path as the kernel does in the staged tree, following links; returns `nil` if there is
    /// nothing.
    ///
    /// Takes a binary search for each component.
    package func resolve(_ path: ContentPath) -> Resolution? {
        var rest = Self.components(path.text)[...]
        var way: [[UInt8]] = []
        var links: [Int] = []
        var found = Resolution.Item.directory
        while let next = rest.popFirst() {
            // A file has nothing below it.
            guard found == .directory else { return nil }
            if next == [UInt8(ascii: ".")] { continue }
            if next == Array("..".utf8) {
                guard way.popLast() != nil else { return nil }
                continue
            }
            way.append(next)
            let bytes = Array(way.joined(separator: [UInt8(ascii: "/")]))
            guard let position = position(of: bytes) else {
                guard hasEntry(below: bytes) else { return nil }
                continue
            }
            switch entries.kind(at: position) {
            case .file: found = .file(position)
            case .directory: break
            case .link(let target):
                guard links.count < Self.maximumLinks else { return nil }
                links.append(position)
                way.removeLast()
                rest = (Self.components(target.text) + rest)[...]
            }
        }
        return Resolution(item: found, links: links)
    }

    private static func components(_ text: String) -> [[UInt8]] {
        text.utf8.split(separator: UInt8(ascii: "/")).map { Array($0) }
    }

    /// Returns the position of the entry with this path.
    func position(of path: some Collection<UInt8>) -> Int? {
        let position = firstEntry(from: path)
        guard position < entries.count, entries.pathBytes(at: position).elementsEqual(path) else {
            return nil
        }
        return position
    }

    /// Returns the position of the first entry whose path is not less than `bytes`.
    private func firstEntry(from bytes: some Collection<UInt8>) -> Int {
        entries.indices.partitioningIndex {
            !entries.pathBytes(at: $0).lexicographicallyPrecedes(bytes)
        }
    }

    private func hasEntry(below bytes: [UInt8]) -> Bool {
        let prefix = bytes + [UInt8(ascii: "/")]
        let position = firstEntry(from: prefix)
        return position < entries.count && entries.pathBytes(at: position).starts(with: prefix)
    }
}
