import StageModel

/// Checks rules across the entries that selectors found.
enum EntryValidator {
    typealias Entry = RecipeEvaluation.Entry

    /// Returns the entries with their parent directories, each once, in the order of a pack.
    static func ordered(_ found: [Entry]) throws(PackagingError) -> [Entry] {
        var entries = found
        entries += directories(above: found)
        entries.sort { $0.content.path < $1.content.path }
        var count = 0
        for position in entries.indices {
            let entry = entries[position]
            guard count > 0, case let last = entries[count - 1],
                isSame(last.content.path, as: entry.content.path)
            else {
                if count < position { entries[count] = entry }
                count += 1
                continue
            }
            let areDirectories =
                last.content.kind == .directory && entry.content.kind == .directory
            guard areDirectories || last.file == entry.file && last.content == entry.content else {
                throw .collision(
                    path: entry.content.path,
                    first: last.source,
                    second: entry.source
                )
            }
        }
        entries.removeLast(entries.count - count)
        return entries
    }

    private static func directories(above found: [Entry]) -> [Entry] {
        var seen: Set<[UInt8]> = []
        var directories: [Entry] = []
        for entry in found {
            var path = entry.content.path.parent
            while let directory = path, seen.insert(Array(directory.text.utf8)).inserted {
                var implied = entry
                implied.content = ContentEntry(path: directory, kind: .directory)
                implied.size = .zero
                directories.append(implied)
                path = directory.parent
            }
        }
        return directories
    }

    /// Compares two paths by their bytes: Swift treats canonically equivalent text as equal.
    private static func isSame(_ first: ContentPath, as second: ContentPath) -> Bool {
        first.text.utf8.elementsEqual(second.text.utf8)
    }

    /// Throws if a link leaves the pack, by itself or through other links.
    static func checkLinks(_ entries: [Entry]) throws(PackagingError) {
        var links = ContentLinks()
        for entry in entries {
            if case .link(let target) = entry.content.kind {
                links.add(entry.content.path, to: target)
            }
        }
        guard let (path, fault) = links.firstFault() else { return }
        let entry = entries.first { $0.content.path.text.utf8.elementsEqual(path.utf8) }
        throw .notAllowed([RefusedSource(source: entry?.source ?? path, fault: fault)])
    }

    /// Throws if the entries, which include all directories, exceed the limits of a manifest.
    ///
    /// - Parameters:
    ///   - entries: The entries.
    ///   - size: The sum of the sizes of the files.
    ///   - count: The number of files and links.
    /// - Throws: ``PackagingError/overLimit(_:)``.
    static func checkLimits(
        _ entries: [Entry],
        size: ByteCount,
        count: Int
    ) throws(PackagingError) {
        guard count <= ManifestLimits.fileCount else {
            throw .overLimit(
                ValueError(expected: "at most \(ManifestLimits.fileCount) files", found: "\(count)")
            )
        }
        guard size <= ManifestLimits.installedSize else {
            throw .overLimit(
                ValueError(
                    expected: "at most \(ManifestLimits.installedSize.rawValue) bytes",
                    found: "\(size.rawValue)"
                )
            )
        }
        let limit = ManifestLimits.directories(fileCount: count)
        guard entries.count - count <= limit else {
            throw .overLimit(
                ValueError(
                    expected:
                        "at most \(limit.quantity(of: "directory", plural: "directories")) with "
                        + count.quantity(of: "file"),
                    found: "\(entries.count - count)"
                )
            )
        }
    }

    /// Finds paths that are equal on case-insensitive file systems, and links without a target.
    static func warnings(_ entries: [Entry]) -> [RecipeEvaluation.Warning] {
        var warnings: [RecipeEvaluation.Warning] = []
        // Strings are equal in any Unicode normal form, so lowercasing folds case and normal form.
        var folded: [String: Int] = [:]
        for (index, entry) in entries.enumerated() {
            let path = entry.content.path
            guard let earlier = folded.updateValue(index, forKey: path.text.lowercased()) else {
                continue
            }
            warnings.append(.nameCollision(entries[earlier].content.path, path))
        }
        for entry in entries {
            guard case .link(let target) = entry.content.kind,
                let end = destination(of: entry.content.path, target: target),
                !end.isEmpty, folded[end.lowercased()] == nil
            else { continue }
            let above = nearest(above: end) { folded[$0.lowercased()] }
            // The targets of links through other links are not checked.
            if let above, case .link = entries[above].content.kind { continue }
            warnings.append(.danglingLink(entry.content.path, target: target.text))
        }
        return warnings
    }

    /// Returns the nearest parent directory for which `find` returns a value.
    private static func nearest(above path: String, find: (String) -> Int?) -> Int? {
        var components = path.pathComponents
        while components.popLast() != nil {
            if let found = find(components.joined(separator: "/")) { return found }
        }
        return nil
    }

    /// Returns the path that a link's target resolves to as text.
    private static func destination(of path: ContentPath, target: LinkTarget) -> String? {
        var components = Array(path.components.dropLast())
        for component in target.text.pathComponents where component != "." {
            if component == ".." {
                guard components.popLast() != nil else { return nil }
            } else {
                components.append(component)
            }
        }
        return components.joined(separator: "/")
    }
}
