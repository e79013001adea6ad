import StageModel
import StageTrust

extension SigningRun {
    /// Publishes the same root with a new expiry, and gives the draft of the next root a later version.
    ///
    /// After a crash before the publication, the next run publishes it.
    func renew(
        _ published: RootDocument,
        with tasks: SigningTasks
    ) throws(SigningError) -> SigningReport {
        let waiting = try draftRoot(after: published)
        let version = published.document.version
        if let waiting {
            let content = waiting.content.tree(version: version + 2, signedAt: time)
            try files.storeDraft(SignedDocument(signed: content), of: .root)
        }
        var tasks = tasks
        tasks.signsRoot = true
        let renewal = published.content.tree(version: version + 1, signedAt: time)
        var report: SigningReport
        do throws(SigningError) {
            report = try perform(
                tasks,
                published: published,
                draft: root(SignedDocument(signed: renewal))
            )
        } catch {
            // The error of the renewal is reported, and the draft keeps its signatures.
            if let waiting, (try? publishedRoot())?.document.version == version {
                try? files.storeDraft(waiting.document, of: .root)
            }
            throw error
        }
        guard let waiting else { return report }
        let current = try publishedRoot()
        if current?.document.version == version {
            try files.storeDraft(waiting.document, of: .root)
        }
        report.drafts = try self.report(nil, published: current).drafts
        return report
    }

    func root(_ document: SignedDocument) throws(SigningError) -> RootDocument {
        try RootDocument(document, path: files.metadataPath)
    }

    func publishedRoot() throws(SigningError) -> RootDocument? {
        guard let document = try files.latestRoot() else { return nil }
        return try root(document)
    }

    /// Returns the draft of the root after the published one; `nil` if there is none.
    ///
    /// A draft near expiry restarts without signatures: clients would soon refuse the repository if it was published.
    func draftRoot(after published: RootDocument?) throws(SigningError) -> RootDocument? {
        guard let document = try files.draft(.root),
            document.version == (published?.document.version ?? 0) + 1
        else { return nil }
        let draft = try root(document)
        let periods = draft.content.periods
        guard periods.isDue(.root, expiry: document.expiry, at: time) else { return draft }
        let content = draft.content.tree(version: document.version, signedAt: time)
        return try root(SignedDocument(signed: content))
    }

    /// Returns whether the root is near expiry and the supplied keys suffice to renew it.
    func renews(_ root: RootDocument) -> Bool {
        root.content.periods.isDue(.root, expiry: root.document.expiry, at: time)
            && hasEnoughSigners(for: .root, under: root)
    }

    /// Throws if none of the supplied keys signs for any role.
    func checkSigners(under roots: [RootDocument]) throws(SigningError) {
        let expected = roots.flatMap { $0.content.roles.values.flatMap(\.keys) }.map(\.id)
        let given = signers.map(\.key.id)
        guard Set(expected).isDisjoint(with: given) else { return }
        throw .noSigner(role: nil, expected: expected.uniqued, given: given)
    }

    func hasEnoughSigners(for role: SigningRole, under root: RootDocument) -> Bool {
        let content = root.content.roles[role]
        let ids = Set(content?.keys.map(\.id) ?? [])
        let count = Set(signers.map(\.key.id)).intersection(ids).count
        return count >= content?.threshold ?? 1
    }
}
