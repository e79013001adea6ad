import StageDigest
package import StageModel
package import StageSystem
package import SystemPackage

/// A file beside an archive, or an index, with its digest and the recipes that it was made from.
///
/// Shows before a manifest offers them whether an archive and a recipe belong together. Clients do not read it.
package struct PackRecord: Equatable, Sendable {
    /// A recipe, as far as it decides what a pack contains.
    package struct Source: Equatable, Sendable {
        /// The pack of the recipe.
        package var pack: PackID
        /// The digest of the recipe's selection, ``StagePublish/Recipe/selectionDigest``.
        package var digest: Digest
    }

    /// The digest of the archive or the index.
    package var digest: Digest
    /// The recipes that gave these bytes: one for an archive, several for an index that equal content shares.
    package private(set) var sources: [Source]

    /// Creates the record of an archive, or an index, that was made from a recipe.
    package init(of digest: Digest, from recipe: Recipe) {
        self.digest = digest
        sources = [Source(recipe)]
    }

    /// Returns the path of the record of an archive or an index: its name followed by `.pack.json`.
    ///
    /// The record of an index is hidden, so that the folder of a store lists indexes alone. The record of a link is that of its
    /// target.
    package static func path(beside archive: FilePath) -> FilePath {
        path(besideName: archive.resolvedIfLink)
    }

    /// Returns the path of the record beside a name, also if the name is a link.
    private static func path(besideName file: FilePath) -> FilePath {
        guard let name = file.lastComponent?.string else { return file }
        let isIndex = (try? Digest(hexadecimal: name)) != nil
        return file.removingLastComponent()
            .appending("\(isIndex ? "." : "")\(name).pack.json")
    }

    /// Reads the record beside an archive or an index; returns `nil` if there is none.
    package static func read(beside archive: FilePath) throws(PackRecordError) -> PackRecord? {
        var path = path(beside: archive)
        // Programs that replace each file of a folder by a link replace the record, too.
        if !FileStatus.exists(path) { path = Self.path(besideName: archive) }
        let bytes: [UInt8]
        do throws(FileError) {
            bytes = try File.open(readingRegular: path).readAll(limit: byteLimit)
        } catch {
            if error.errno == .noSuchFileOrDirectory { return nil }
            throw .file(error)
        }
        do throws(ManifestError) {
            return try PackRecord(json: bytes)
        } catch {
            throw .invalid(path, error)
        }
    }

    /// Removes the record beside an archive that is about to be replaced.
    package static func remove(beside archive: FilePath) throws(FileError) {
        let path = path(beside: archive)
        guard let name = path.lastComponent, FileStatus.exists(path) else { return }
        try directory(of: path).remove(name)
    }

    /// Writes the record beside its archive or index; adds to a record of the same bytes.
    package func write(beside archive: FilePath) throws(FileError) {
        var record = self
        // A damaged record is replaced.
        let known = (try? Self.read(beside: archive)) ?? nil
        if let known, known.digest == digest {
            let new = sources.filter { !known.sources.contains($0) }
            // An unchanged record keeps its modification time, so that tools do not upload it again.
            if new.isEmpty { return }
            record.sources = (known.sources + new).suffix(Self.sourceLimit)
        }
        let path = Self.path(beside: archive)
        guard let name = path.lastComponent else { return }
        try Self.directory(of: path).rewrite(record.json, to: name, durably: true)
    }

    /// Writes the record beside an archive that `publish` replaces.
    ///
    /// A disk on which the record does not fit keeps the previous archive with its record.
    ///
    /// - Parameters:
    ///   - archive: The archive.
    ///   - publish: Replaces the archive, durably.
    /// - Throws: ``FileError`` if the record cannot be written, and the errors of `publish`.
    func write(
        beside archive: FilePath,
        publishing publish: () throws(FileError) -> Void
    ) throws(FileError) {
        let path = Self.path(beside: archive)
        guard let name = path.lastComponent else { return try publish() }
        let (directory, content) = (try Self.directory(of: path), json)
        let temporary = try TemporaryFile.make(for: name, in: directory)
        do throws(FileError) {
            try temporary.file.write(content.span, at: 0)
            try temporary.file.synchronize()
            // Beside the new archive, after a crash, the record of the previous one would be refused.
            try Self.remove(beside: archive)
            try publish()
            try directory.rename(FilePath(temporary.name), over: name)
            try directory.synchronize()
        } catch {
            // The first error is the one to report.
            _ = try? directory.remove(temporary.name)
            throw error
        }
    }

    /// Checks that the archive or index was made from the recipe.
    ///
    /// - Throws: ``PackRecordError/otherRecipe(of:)`` if it was not.
    package func check(_ recipe: Recipe) throws(PackRecordError) {
        guard !sources.contains(Source(recipe)) else { return }
        let packs = sources.map(\.pack)
        throw .otherRecipe(of: packs.contains(recipe.pack) ? recipe.pack : packs[0])
    }

    /// Checks that the record is that of these bytes.
    ///
    /// - Throws: ``PackRecordError/otherContent`` if it is not.
    package func check(_ found: Digest) throws(PackRecordError) {
        guard found == digest else { throw .otherContent }
    }

    private static func directory(of path: FilePath) throws(FileError) -> Directory {
        let above = path.removingLastComponent()
        return try Directory.open(above.isEmpty ? "." : above)
    }
}

extension PackRecord.Source {
    fileprivate init(_ recipe: Recipe) {
        self.init(pack: recipe.pack, digest: recipe.selectionDigest)
    }
}

extension Recipe {
    /// The digest of the members that decide what the pack contains: `assetPackID`, `sourceRoot` and `fileSelectors`.
    ///
    /// The policy and `userInfo` may change without another archive.
    package var selectionDigest: Digest {
        var parts = [pack.text, sourceRoot ?? ""]
        for selector in selectors { parts += selector.parts }
        return Digest(of: Array(parts.joined(separator: "\0").utf8))
    }
}

extension FileSelector {
    /// The kind, the source and the destination.
    fileprivate var parts: [String] {
        switch self {
        case .file(let source, let destination): ["file", source, destination.text]
        case .directory(let source, let destination):
            ["directory", source, destination?.text ?? ""]
        case .pattern(let pattern): ["pattern", pattern.text, ""]
        case .exclusion(let pattern): ["exclusion", pattern.text, ""]
        }
    }
}

extension PackRecord {
    private static let formatVersion = 1
    private static let byteLimit = 64 << 10
    private static let sourceLimit = 100

    private enum Key: String, CodingKey { case packRecordVersion, sha256, recipes }
    private enum SourceKey: String, CodingKey { case assetPackID, sha256 }

    private init(json: [UInt8]) throws(ManifestError) {
        let document = try ManifestError.decode(Document.self, from: json, limit: Self.byteLimit)
        self = document.record
    }

    private struct Document: JSONReadable {
        var record: PackRecord

        init(reading node: JSONNode) throws(ManifestError) {
            let members = try JSONMembers(node, keyedBy: Key.self)
            let version = try members.number(.packRecordVersion, in: .min ... .max)
            try ManifestError.check(version: version, known: PackRecord.formatVersion)
            let sources = try members.values(
                SourceDocument.self,
                for: .recipes,
                expected: "an array of recipes",
                atMost: PackRecord.sourceLimit
            )
            guard !sources.isEmpty else {
                throw members.fault(
                    for: .recipes,
                    ValueError(expected: "at least one recipe", found: "none")
                )
            }
            record = PackRecord(
                digest: try members.text(.sha256) { text throws(ValueError) in
                    try Digest(hexadecimal: text)
                },
                sources: sources.map(\.source)
            )
        }
    }

    private struct SourceDocument: JSONReadable {
        var source: Source

        init(reading node: JSONNode) throws(ManifestError) {
            let members = try JSONMembers(node, keyedBy: SourceKey.self)
            source = Source(
                pack: try members.text(.assetPackID) { text throws(ValueError) in
                    try PackID(text)
                },
                digest: try members.text(.sha256) { text throws(ValueError) in
                    try Digest(hexadecimal: text)
                }
            )
        }
    }

    private init(digest: Digest, sources: [Source]) {
        self.digest = digest
        self.sources = sources
    }

    private var json: [UInt8] {
        let recipes = sources.map { source in
            JSONTree.object([
                .init("assetPackID", .string(source.pack.text)),
                .init("sha256", .string(source.digest.description)),
            ])
        }
        let tree = JSONTree.object([
            .init("packRecordVersion", .integer(Int64(Self.formatVersion))),
            .init("sha256", .string(digest.description)),
            .init("recipes", .array(recipes)),
        ])
        return Array((tree.indented() + "\n").utf8)
    }
}

/// An error of the record of an archive or an index.
@nonexhaustive
package indirect enum PackRecordError: Error, Equatable, Sendable {
    /// The record cannot be read.
    case file(FileError)
    /// The file is not a record.
    case invalid(FilePath, ManifestError)
    /// The archive or index is not the one that was made together with the record.
    case otherContent
    /// The archive or index was made from another recipe of this pack.
    case otherRecipe(of: PackID)
}

extension PackRecordError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .file(let error): error.description
        case .invalid(let path, let error): "'\(path)': \(error)"
        case .otherContent: "it has changed since it was packaged"
        case .otherRecipe(let pack): "it was made from another recipe, of pack '\(pack)'"
        }
    }
}
