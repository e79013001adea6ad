package import StageModel
package import StageSystem
import SystemPackage

/// A generation that is not current, with the version and the content of an offered pack.
package struct KeptGeneration: Equatable, Sendable {
    /// The name of the generation.
    package var name: GenerationName
    /// The URL that its content came from.
    package var source: String
    /// The number of its directories.
    package var directoryCount: Int
}

extension ContainerReader {
    /// Returns the generations with the version and the content of `pack` that are not current and have all their files,
    /// the latest copy first; none if the pack has neither a link nor a directory of its name in `packs/`.
    ///
    /// Such a generation remains after a rollback whose pin was released, after a publication that was killed before it
    /// switched the link, and in a copy of the container that has a directory instead of the link. Does not compare the
    /// content with its digests. Costs a listing of the pack's generations, and some fstatat(2) for each that is returned.
    package func keptGenerations(
        holding pack: Pack
    ) throws(ContainerError) -> [KeptGeneration] {
        let id = pack.id
        let current = try currentGeneration(of: id)
        if current == nil {
            guard try isCopied(id) else { return [] }
        }
        var kept: [KeptGeneration] = []
        for name in try generations(of: id) where name != current && name.holds(pack) {
            // A generation that this user cannot read is of no use.
            guard let record = try? completeRecord(of: name, holding: pack) else { continue }
            kept.append(
                KeptGeneration(
                    name: name,
                    source: record.source,
                    directoryCount: record.directoryCount
                )
            )
        }
        return kept.sorted { $0.name.attempt > $1.name.attempt }
    }

    /// Returns the record of a generation of `pack` that has all its files; `nil` if one is missing or has another form.
    private func completeRecord(
        of name: GenerationName,
        holding pack: Pack
    ) throws(ContainerError) -> StagedPack? {
        guard let record = try intactRecord(of: name, pack.id), record.id == pack.id,
            record.holds(pack), try hasContent(name, of: pack.id),
            try faults(of: name, pack.id, isCurrent: false).isEmpty
        else { return nil }
        return record
    }

    /// Opens the directory of a generation; `nil` if it does not exist.
    package func directory(
        of generation: GenerationName,
        _ id: PackID
    ) throws(ContainerError) -> Directory? {
        try ContainerError.wrapping { () throws(FileError) in
            try root.directory(path(of: generation, id))
        }
    }

    private func hasContent(
        _ generation: GenerationName,
        of id: PackID
    ) throws(ContainerError) -> Bool {
        try ContainerError.wrapping { () throws(FileError) in
            let name = path(of: generation, id).appending(ContainerLayout.content)
            return try root.status(name)?.kind == .directory
        }
    }
}

extension Container {
    /// Makes a kept generation of a pack current, as if it were staged now.
    ///
    /// Does not compare the content with its digests. On return, the change is durable; after an error or a crash, the
    /// generation that was current before may still be.
    ///
    /// - Parameters:
    ///   - generation: The generation.
    ///   - record: Its new record.
    ///   - lock: The lock on the pack.
    /// - Throws: ``ContainerError`` if the generation is gone, or the container cannot be changed.
    package func restore(
        _ generation: GenerationName,
        as record: StagedPack,
        holding lock: PackLock
    ) throws(ContainerError) {
        guard let directory = try reader.directory(of: generation, lock.id) else {
            throw .notStaged(lock.id)
        }
        // Before the switch: afterwards a rollback must find the generation that this one replaces.
        try JSONRecord.write(
            try recordWithPrevious(record).json,
            to: ContainerLayout.packRecord,
            in: directory,
            durably: true
        )
        try setCurrent(generation, of: lock.id)
    }
}
